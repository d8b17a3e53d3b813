"""The sweep file: one question, the arms that may answer it, the workload, and where it can run."""

from orchestrator.spec.arms import ArmSpec, SearchSpec
from orchestrator.spec.base import Spec
from orchestrator.spec.blocks import BlockSpec, WarmupSpec
from orchestrator.spec.profile import EngineSpec, MatchSpec, ModelSpec, ProfileSpec
from orchestrator.spec.rules import EquivalenceSpec, SelectionSpec, SloSpec
from orchestrator.spec.sweep import SweepSpec, dump_spec, load_spec
from orchestrator.spec.workload import ArrivalSpec, PromptSpec, WorkloadSpec

__all__ = [
    "ArmSpec",
    "ArrivalSpec",
    "BlockSpec",
    "EngineSpec",
    "EquivalenceSpec",
    "MatchSpec",
    "ModelSpec",
    "ProfileSpec",
    "PromptSpec",
    "SearchSpec",
    "SelectionSpec",
    "SloSpec",
    "Spec",
    "SweepSpec",
    "WarmupSpec",
    "WorkloadSpec",
    "dump_spec",
    "load_spec",
]
