"""What a run stores: the columns of its frames and the records of its JSON files. The one place that names them."""

from orchestrator.records.base import Interval, Record
from orchestrator.records.decision import ArmSummary, Comparison, Decision, Look, Pause, PointDecision, Verdict
from orchestrator.records.equivalence import Divergence, GateResult
from orchestrator.records.probe import Place, Probe
from orchestrator.records.requests import REQUEST_COLUMNS, request_frame
from orchestrator.records.trees import DraftTrees, TreeNode, TreeStep
from orchestrator.records.trial import JournalEntry, LoadRecord, PhaseRecord, TrialRecord, TrialState

__all__ = [
    "REQUEST_COLUMNS",
    "ArmSummary",
    "Comparison",
    "Decision",
    "Divergence",
    "DraftTrees",
    "GateResult",
    "Interval",
    "JournalEntry",
    "LoadRecord",
    "Look",
    "Pause",
    "PhaseRecord",
    "Place",
    "PointDecision",
    "Probe",
    "Record",
    "TreeNode",
    "TreeStep",
    "TrialRecord",
    "TrialState",
    "Verdict",
    "request_frame",
]
