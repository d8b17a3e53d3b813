"""What a run stores: the columns of its frames and the records of its JSON files. The one place that names them."""

from __future__ import annotations

from enum import StrEnum

import pandas as pd
from pydantic import BaseModel, ConfigDict

REQUEST_COLUMNS: dict[str, str] = {
    "prompt_id": "string",
    "task": "string",
    "scheduled": "float64",
    "sent": "float64",
    "first": "float64",
    "last": "float64",
    "first_chunk_tokens": "int64",
    "chunks": "int64",
    "prompt_tokens": "int64",
    "output_tokens": "int64",
    "finish_reason": "string",
    "verify_steps": "int64",
    "drafted": "int64",
    "accepted": "int64",
    "emitted": "int64",
    "accepted_by_depth": "object",
    "cached_tokens": "int64",
    "token_ids": "object",
    "prompt_token_ids": "object",
    "text": "string",
    "error": "string",
}
"""requests.parquet: one row a request. Times are seconds on the trial's monotonic clock; NaN for what never came."""


class TrialState(StrEnum):
    STARTED = "started"
    VALID = "valid"
    INVALID = "invalid"
    FAILED = "failed"


class Verdict(StrEnum):
    WINNER = "winner"
    TIE = "tie"
    INVALID = "invalid"


class Record(BaseModel):
    """Base of everything written to a JSON file: unknown keys are an error, records never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Interval(Record):
    """A point estimate with its confidence interval. Units are the quantity's own."""

    estimate: float
    low: float
    high: float


class TrialRecord(Record):
    """trial.json: what was measured, on what, and whether it counts."""

    digest: str
    arm: str
    concurrency: int
    block: int
    state: TrialState
    reason: str = ""
    slot: str
    identity: dict[str, object]
    counters: dict[str, object]
    stages: dict[str, float] | None
    warmup_requests: int
    warmup_flat: bool
    started_at: str
    duration: float
    window: tuple[float, float]


class JournalEntry(Record):
    """One line of journal.jsonl: a trial changed state."""

    time: str
    trial: str
    arm: str
    concurrency: int
    block: int
    state: TrialState
    slot: str = ""
    reason: str = ""
    seconds: float = 0.0


class ArmSummary(Record):
    """One arm at one workload point: the row of the report's table."""

    arm: str
    engine: str
    method: str
    budget: int | None
    concurrency: int
    trials: int
    unsettled_trials: int
    """Valid trials whose warm-up ended before the speed was flat."""
    requests: int
    errors: int
    tokens: int
    output_tok_s: Interval
    tpot_ms: Interval
    ttft_ms_p50: float
    ttft_ms_p90: float
    tpot_ms_p50: float
    tpot_ms_p90: float
    e2e_ms_p50: float
    e2e_ms_p90: float
    acceptance_length: Interval
    acceptance_length_macro: float
    acceptance_by_depth: list[float]
    budget_efficiency: float | None
    goodput_rps: float | None
    truncated_share: float
    step_ms: dict[str, float]
    identity_error: float | None
    """Relative error of TPOT ~ step time / acceptance length; None without stage times."""


class Comparison(Record):
    """An arm against the baseline on the held-out half: speed-up as a ratio of decode times (baseline / arm)."""

    arm: str
    baseline: str
    concurrency: int
    prompts: int
    speedup: Interval
    p_value: float
    p_adjusted: float
    selection_speedup: float
    """Geometric-mean speed-up on the half of the prompts that chose the arm."""
    token_weighted_speedup: float
    """Of the pooled times per token on the held-out half: what a user of long answers sees."""


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


class PointDecision(Record):
    """The decision at one workload point.

    `arm` is what to run: the winner, on a tie the baseline, None when invalid. `candidate` is the arm that the
    choosing half put forward, `excluded` the arms that were not ranked, with the reason.
    """

    concurrency: int
    verdict: Verdict
    arm: str | None
    candidate: str | None
    reason: str
    excluded: dict[str, str]
    comparisons: list[Comparison]


class Decision(Record):
    """decision.json: the answer, and what it rests on. `arm` as in PointDecision.

    `gates` is empty and `unchecked` says why where the equivalence gate was not run.
    """

    verdict: Verdict
    arm: str | None
    sentence: str
    question: str
    baseline: str
    concurrency: int
    points: list[PointDecision]
    gates: list[GateResult]
    unchecked: str
    summaries: list[ArmSummary]
    invalid_trials: list[str]
    margin: float
    confidence: float


def request_frame(rows: list[dict[str, object]]) -> pd.DataFrame:
    """Rows with exactly REQUEST_COLUMNS as a typed frame; empty for no rows."""
    return pd.DataFrame(rows, columns=list(REQUEST_COLUMNS)).astype(REQUEST_COLUMNS)
