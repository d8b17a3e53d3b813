"""What the equivalence gate found."""

from __future__ import annotations

from orchestrator.records.base import Record


class GateResult(Record):
    """The equivalence gate for one arm: greedy text against plain decoding on the same engine and prompts."""

    arm: str
    prompts: int
    exact: int
    near_ties: int
    violations: int
    near_tie_gap: float
    passed: bool
    reason: str = ""


class Divergence(Record):
    """Where one prompt's text first departs from plain decoding's. A row of equivalence.parquet."""

    arm: str
    prompt_id: str
    concurrency: int
    position: int
    expected_token: int
    actual_token: int
    gap: float
    near_tie: bool
