"""The table of arms: stored summaries beside their comparison and their gate."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from dashboards.run import Run
from dashboards.theme import ArmStyle
from orchestrator.metrics import caveats
from orchestrator.records import ArmSummary, Comparison, GateResult, TrialState, Verdict
from orchestrator.rounds import planned


@dataclass(frozen=True)
class Row:
    """One arm at one concurrency. `low`, `middle` and `high` place its output speed on a scale of 0 to 100."""

    summary: ArmSummary
    style: ArmStyle
    comparison: Comparison | None
    gate: GateResult | None
    caveats: list[str]
    won: bool
    low: float
    middle: float
    high: float


@dataclass(frozen=True)
class Group:
    """The rows of one concurrency, fastest arm first."""

    concurrency: int
    rows: list[Row]


@dataclass(frozen=True)
class Progress:
    """How many trials of an arm are planned (None: unknown) and stored, by state."""

    style: ArmStyle
    planned: int | None
    valid: int
    invalid: int
    failed: int


def arm_groups(run: Run) -> list[Group]:
    """A group a concurrency, the decision's first. Empty without a decision."""
    if run.decision is None:
        return []
    points = {summary.concurrency for summary in run.decision.summaries}
    decided = run.decision.concurrency
    return [_group(run, point) for point in sorted(points, key=lambda point: (point != decided, point))]


def unsettled(run: Run) -> str:
    """What a ~ before a percentile means, to follow the word latencies; empty where none is shown."""
    summaries = run.decision.summaries if run.decision else []
    marked = any({50, 90} & set(summary.indicative) for summary in summaries)
    return "; ~ where requests are too few to settle a percentile" if marked else ""


def progress(run: Run) -> list[Progress]:
    """Trials stored so far, an arm a row in reading order, among the blocks that are due after the looks."""
    due = planned(run.spec, run.looks) if run.spec else {}
    states = Counter((trial.arm, trial.state) for trial in run.trials)
    return [
        Progress(
            style,
            due.get(name),
            valid=states[name, TrialState.VALID],
            invalid=states[name, TrialState.INVALID],
            failed=states[name, TrialState.FAILED],
        )
        for name, style in run.styles.items()
    ]


def _group(run: Run, concurrency: int) -> Group:
    decision = run.decision
    assert decision is not None
    point = next((p for p in decision.points if p.concurrency == concurrency), None)
    compared = {c.arm: c for c in point.comparisons} if point else {}
    gates = {gate.arm: gate for gate in decision.gates}
    summaries = [s for s in decision.summaries if s.concurrency == concurrency]
    summaries.sort(key=lambda s: -s.output_tok_s.estimate)
    top = max(s.output_tok_s.high for s in summaries)
    winner = point.arm if point and point.verdict is Verdict.WINNER else None
    rows = []
    for summary in summaries:
        low, middle, high = (100 * value / top for value in _ends(summary))
        style, comparison, gate = run.styles[summary.arm], compared.get(summary.arm), gates.get(summary.arm)
        won = summary.arm == winner
        rows.append(Row(summary, style, comparison, gate, caveats(summary), won, low, middle, high))
    return Group(concurrency, rows)


def _ends(summary: ArmSummary) -> tuple[float, float, float]:
    speed = summary.output_tok_s
    return speed.low, speed.estimate, speed.high
