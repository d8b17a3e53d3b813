"""The main job: measure, gate, decide, report."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from dashboards.report import write_report
from orchestrator.cluster import Choice
from orchestrator.decision import decide
from orchestrator.driver import run_sweep
from orchestrator.environment import describe
from orchestrator.gate import run_gate
from orchestrator.plan import Plan
from orchestrator.records import Decision
from orchestrator.spec import dump_spec
from orchestrator.store import RunStore


def run(plan: Plan, store: RunStore, choice: Choice, console: Console) -> tuple[Decision, Path]:
    """Measure what the store does not hold yet, then decide from all of it. Returns the decision and the report."""
    with store.lock():
        store.create(dump_spec(plan.spec), describe())
        run_sweep(plan, store, choice, console)
        gates, _ = run_gate(plan, store, choice, console)
        with console.status("deciding"):
            decision = decide(plan, store.trials(), store.requests(), gates)
            store.write_decision(decision)
        with console.status("writing the report"):
            report = write_report(store, store.folder / "report.html")
    return decision, report
