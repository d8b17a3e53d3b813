"""outputs.json: what a run tells beside its winner. Records alone; `metrics.outputs` makes them."""

from __future__ import annotations

from enum import StrEnum

from orchestrator.records import Interval, Record


class CurvePoint(Record):
    """Time of a verify forward against how many tokens it holds.

    `width`: tokens a request brings to it (tree nodes with the root, a block, 1 for plain decoding); `packed`: width x
    concurrency. The interval is over trials.
    """

    arm: str
    engine: str
    method: str
    concurrency: int
    width: int
    packed: int
    verify_ms: Interval
    step_ms: float


class Cliff(Record):
    """A step of the curve that is steeper than the curve: where another kernel or another tile size begins.

    `jump` is relative: the time above what the curve's own slope leads to, over the time before.
    """

    engine: str
    concurrency: int
    before: int
    at: int
    before_ms: float
    at_ms: float
    jump: float
    name: str


class Payoff(StrEnum):
    THROUGHOUT = "pays throughout"
    NEVER = "never pays"
    CROSSES = "stops paying"
    UNDECIDED = "cannot be told"


class Crossing(Record):
    """Up to which concurrency `arm` is faster than `against`.

    `concurrency` is where the speed-up passes 1, interpolated on logarithmic scales; None unless it does so within the
    range measured. Its interval's end is the end of that range where draws do not cross at all. `sure_to`: the highest
    concurrency measured up to which it pays by as many draws as the confidence says; None where not even at the lowest.
    """

    arm: str
    against: str
    payoff: Payoff
    concurrency: Interval | None
    measured_from: int
    measured_to: int
    sure_to: int | None = None


class Rate(Record):
    """What one arm gives at one concurrency, to a user and for the money.

    `gpus` is 0 on a CPU, where `tok_s_gpu` is the slot's. Goodput, cost and energy are None where there is no limit, no
    price or no power reading. `on_front`: no other point is better in both speeds.
    """

    arm: str
    concurrency: int
    gpus: int
    tok_s_user: Interval
    tok_s_gpu: Interval
    on_front: bool
    goodput_rps: float | None
    goodput_tok_s: float | None
    usd_per_million: float | None
    joules_per_token: float | None


class PositionCell(Record):
    """Acceptance of one arm on one task while the answer was `start` to `end` tokens long (`end` None: open).

    `by_depth[k]`: share of the verify steps that gave out more than k + 1 tokens, so accepted more than k drafted ones.
    """

    arm: str
    concurrency: int
    task: str
    start: int
    end: int | None
    steps: int
    acceptance_length: float
    by_depth: list[float]


class Outputs(Record):
    """outputs.json."""

    slo: dict[str, float]
    price_per_gpu_hour: float | None
    curve: list[CurvePoint]
    cliffs: list[Cliff]
    crossings: list[Crossing]
    rates: list[Rate]
    positions: list[PositionCell]
