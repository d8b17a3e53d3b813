"""The main job: measure, gate, decide."""

from __future__ import annotations

from rich.console import Console

from orchestrator.cluster import Choice
from orchestrator.decision import decide
from orchestrator.driver import run_sweep
from orchestrator.environment import describe
from orchestrator.gate import run_gate
from orchestrator.plan import Plan
from orchestrator.records import Decision
from orchestrator.spec import dump_spec
from orchestrator.store import RunStore


def run(plan: Plan, store: RunStore, choice: Choice, console: Console) -> Decision:
    """Measure what the store does not hold yet, then decide from all of it."""
    with store.lock():
        store.create(dump_spec(plan.spec), describe())
        run_sweep(plan, store, choice, console)
        gates, _ = run_gate(plan, store, choice, console)
        with console.status("deciding"):
            decision = decide(plan, store.trials(), store.requests(), gates)
            store.write_decision(decision)
    return decision
