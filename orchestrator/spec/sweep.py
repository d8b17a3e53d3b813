"""The whole file: its sections together, read and written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from orchestrator.source import Source
from orchestrator.spec.arms import ArmSpec, SearchSpec
from orchestrator.spec.base import Name, Spec
from orchestrator.spec.blocks import BlockSpec, WarmupSpec
from orchestrator.spec.profile import ProfileSpec
from orchestrator.spec.rules import EquivalenceSpec, SelectionSpec, SloSpec
from orchestrator.spec.workload import WorkloadSpec


class SweepSpec(Spec):
    question: Annotated[str, Field(min_length=8, max_length=300)]
    arms: Annotated[list[ArmSpec], Field(min_length=1)]
    search: SearchSpec | None = None
    workload: WorkloadSpec = WorkloadSpec()
    blocks: BlockSpec = BlockSpec()
    warmup: WarmupSpec = WarmupSpec()
    selection: SelectionSpec = SelectionSpec()
    equivalence: EquivalenceSpec = EquivalenceSpec()
    slo: SloSpec = SloSpec()
    profiles: Annotated[dict[Name, ProfileSpec], Field(min_length=1)]

    @model_validator(mode="after")
    def _consistent(self) -> SweepSpec:
        labels = [arm.label() for arm in self.expanded_arms()]
        doubles = sorted({label for label in labels if labels.count(label) > 1})
        if doubles:
            raise ValueError(f"two arms are named {doubles[0]!r}; give one of them another `name`")
        if self.selection.baseline not in labels:
            raise ValueError(f"selection.baseline {self.selection.baseline!r} is no arm; arms: {', '.join(labels)}")
        if len(labels) < 2 and self.search is None:
            raise ValueError("two arms are the least that can be compared, or one and a `search`")
        at = self.selection.at_concurrency
        if at is not None and at not in self.workload.concurrency:
            raise ValueError(f"selection.at_concurrency {at} is not among workload.concurrency")
        return self

    @model_validator(mode="after")
    def _search_can_run(self) -> SweepSpec:
        if self.search is None:
            return self
        if self.workload.arrivals.pattern != "closed":
            raise ValueError("a `search` places the concurrency of a closed loop; remove workload.arrivals")
        highest = max(self.search.concurrency or self.workload.concurrency)
        if self.search.prompts < highest:
            raise ValueError(f"search.prompts {self.search.prompts} cannot keep {highest} requests in flight")
        return self

    def expanded_arms(self) -> list[ArmSpec]:
        return [arm for spec in self.arms for arm in spec.expand()]

    @property
    def decision_concurrency(self) -> int:
        return self.selection.at_concurrency or self.workload.concurrency[0]


def load_spec(path: Path, overrides: list[str] | None = None) -> SweepSpec:
    """Read a sweep file; `overrides` are `dotted.key=value` (the value is YAML). InputError names file and line."""
    source = Source(path)
    for override in overrides or []:
        source.override(override)
    return source.parse(SweepSpec)


def dump_spec(spec: SweepSpec) -> dict[str, Any]:
    """The resolved sweep as plain data for sweep.yaml."""
    return spec.model_dump(mode="json")
