"""Tables that commands print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich import box
from rich.table import Table

from orchestrator.metrics import caveats
from orchestrator.plan import Plan
from orchestrator.records import ArmSummary, Comparison, Decision, Interval, JournalEntry, TrialState


def plan_table(plan: Plan) -> Table:
    """The arms of a plan and how much each one measures."""
    table = Table("arm", "engine", "method", "budget", "trials", "requests", title=plan.spec.question)
    for arm in plan.arms:
        trials = [trial for trial in plan.trials if trial.arm == arm]
        requests = sum(len(trial.prompts) for trial in trials)
        budget = "" if arm.budget is None else str(arm.budget)
        table.add_row(arm.name, arm.engine, arm.method, budget, str(len(trials)), str(requests))
    return table


def progress_table(entries: Sequence[JournalEntry]) -> Table:
    """How many trials of each arm stand in which state."""
    latest = {entry.trial: entry for entry in entries}
    table = Table("arm", *(state.value for state in TrialState))
    for arm in sorted({entry.arm for entry in latest.values()}):
        states = Counter(entry.state for entry in latest.values() if entry.arm == arm)
        table.add_row(arm, *(str(states[state]) for state in TrialState))
    return table


def summary_table(decision: Decision) -> Table:
    """The arms of a decision with their intervals, fastest first, and below what is doubtful; fits 80 columns."""
    doubts = [f"{row.arm} at {row.concurrency}: {caveat}" for row in decision.summaries for caveat in caveats(row)]
    caption = "\n".join([f"{decision.confidence:.0%} intervals", *doubts])
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), caption=caption)
    table.add_column("arm", no_wrap=True)
    for title in ("at\nonce", "tok/s", "speed-up", "accept.\nlength", "TPOT\nms", "TTFT\nms"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("gate")
    comparisons = {(c.arm, c.concurrency): c for point in decision.points for c in point.comparisons}
    gates = {gate.arm: "passed" if gate.passed else "FAILED" for gate in decision.gates}
    for row in sorted(decision.summaries, key=lambda row: (row.concurrency, -row.output_tok_s.estimate)):
        style = "bold" if (row.arm, row.concurrency) == (decision.arm, decision.concurrency) else ""
        table.add_row(*_cells(row, comparisons.get((row.arm, row.concurrency)), gates.get(row.arm, "")), style=style)
    return table


def _cells(row: ArmSummary, comparison: Comparison | None, gate: str) -> list[str]:
    return [
        row.arm,
        str(row.concurrency),
        f"{row.output_tok_s.estimate:.1f}",
        _interval(comparison.speedup) if comparison else "",
        f"{row.acceptance_length.estimate:.2f}",
        f"{row.tpot_ms_p50:.1f}",
        f"{row.ttft_ms_p50:.0f}",
        gate,
    ]


def _interval(value: Interval) -> str:
    return f"{value.estimate:.2f} ({value.low:.2f}-{value.high:.2f})"
