"""looks.jsonl and decision.json: what was concluded, and what it rests on."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from orchestrator.records.base import Interval, Record
from orchestrator.records.equivalence import GateResult


class Verdict(StrEnum):
    WINNER = "winner"
    TIE = "tie"
    INVALID = "invalid"


class Pause(Record):
    """Seconds in which nothing arrived of the answers under way, and those of the trial's window."""

    seconds: float
    window: float


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
    paused_trials: int = 0
    """Valid trials whose answers stood still together (metrics.pauses)."""
    longest_pause: Pause | None = None
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
    ttft_ms_p99: float | None = None
    tpot_ms_p99: float | None = None
    e2e_ms_p99: float | None = None
    indicative: list[int] = Field(default_factory=list)
    """Percentiles for which the requests are too few (metrics.percentiles): to be shown as indicative."""
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


class Look(Record):
    """A line of looks.jsonl: what was concluded between two rounds of blocks, from the choosing half alone.

    `blocks` were measured by then. `half_width` is that of the log speed-up's interval foreseen for `candidate`;
    `dropped` (arm to reason) are measured no further; a `stop` says why no block is added.
    """

    time: str
    concurrency: int
    blocks: int
    candidate: str | None
    half_width: float | None
    dropped: dict[str, str]
    stop: str


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
    looks: list[Look] = Field(default_factory=list)
