"""Tables that commands print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.table import Table

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
    """The arms of a decision with their intervals."""
    percent = f"{decision.confidence:.0%}"
    speedup = f"speed-up ({percent} CI)"
    table = Table("arm", "c", "tok/s", f"TPOT ms ({percent} CI)", "TTFT ms p50", "acceptance length", speedup, "gate")
    comparisons = {(c.arm, c.concurrency): c for point in decision.points for c in point.comparisons}
    gates = {gate.arm: "passed" if gate.passed else "FAILED" for gate in decision.gates}
    for row in decision.summaries:
        table.add_row(*_cells(row, comparisons.get((row.arm, row.concurrency)), gates.get(row.arm, "")))
    return table


def _cells(row: ArmSummary, comparison: Comparison | None, gate: str) -> list[str]:
    return [
        row.arm,
        str(row.concurrency),
        f"{row.output_tok_s.estimate:.1f}",
        _interval(row.tpot_ms, 1),
        f"{row.ttft_ms_p50:.0f}",
        f"{row.acceptance_length.estimate:.2f}",
        _interval(comparison.speedup, 2) + "x" if comparison else "",
        gate,
    ]


def _interval(value: Interval, digits: int) -> str:
    return f"{value.estimate:.{digits}f} ({value.low:.{digits}f}-{value.high:.{digits}f})"
