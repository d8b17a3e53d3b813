"""What a run stores: the columns of its frames and the records of its JSON files. The one place that names them."""

from __future__ import annotations

from enum import StrEnum
from itertools import pairwise

import pandas as pd
from pydantic import BaseModel, ConfigDict, model_validator

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
    "chunk_times": "object",
    "chunk_tokens": "object",
    "coalesced": "int64",
}
"""requests.parquet: one row a request. Times are seconds on the trial's monotonic clock; NaN for what never came.

`chunk_times` and `chunk_tokens` hold the arrival and the token ids of each content chunk; `coalesced` counts the chunks
that came in one read with the one before them.
"""


class TrialState(StrEnum):
    """`invalid`: the engine failed, or what it did cannot count. `failed`: the slot itself was lost."""

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


class PhaseRecord(Record):
    """A stretch of a trial and the output tokens that came in it."""

    seconds: float
    tokens: float


class LoadRecord(Record):
    """How a trial's load was offered and read.

    `cores` are the CPUs of the load client; without `own_core` the engine may run there, too. `lag_ms_p99`: from a
    request's schedule to its bytes on the wire. `coalesced_share`: content chunks that came in one read with the one
    before them. Ramp and drain are what lies before and after the trial's window.
    """

    pattern: str
    cores: list[int]
    own_core: bool
    startup_s: float
    cpu_s: float
    lag_ms_p99: float | None
    coalesced_share: float
    ramp: PhaseRecord
    drain: PhaseRecord


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
    load: LoadRecord | None = None
    hardware: dict[str, object] = {}


class TreeNode(Record):
    """As engines.base.DraftNode."""

    token_id: int
    text: str
    parent: int
    depth: int
    log_prob: float


class TreeStep(Record):
    """As engines.base.DraftTree. ValueError where the nodes are not those of one tree with the accepted path in it."""

    nodes: list[TreeNode]
    accepted: list[int]
    bonus_id: int
    bonus_text: str

    @model_validator(mode="after")
    def _is_a_tree(self) -> TreeStep:
        parents = [node.parent for node in self.nodes]
        if not parents or any(not 0 <= parent < node for node, parent in enumerate(parents[1:], 1)):
            raise ValueError("the nodes are no tree: a parent is missing or comes after its child")
        depths = [0, *(self.nodes[parent].depth + 1 for parent in parents[1:])]
        if depths != [node.depth for node in self.nodes]:
            raise ValueError("the nodes' depths are not those of their parents")
        path = self.accepted
        if not path or path[0] or any(not 0 < b < len(parents) or parents[b] != a for a, b in pairwise(path)):
            raise ValueError("the accepted nodes are no path from the root")
        return self


class DraftTrees(Record):
    """trees.json: the first verify steps of one prompt, decoded once more after the load and counted in nothing.
    `problem` says why there are none."""

    prompt_id: str
    steps: list[TreeStep]
    problem: str = ""


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
    ttft_ms_p99: float | None = None
    tpot_ms_p99: float | None = None
    e2e_ms_p99: float | None = None
    indicative: list[int] = []
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
    looks: list[Look] = []


def request_frame(rows: list[dict[str, object]]) -> pd.DataFrame:
    """Rows with exactly REQUEST_COLUMNS as a typed frame; empty for no rows."""
    return pd.DataFrame(rows, columns=list(REQUEST_COLUMNS)).astype(REQUEST_COLUMNS)
