"""The main job: measure, gate, decide."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from orchestrator.cluster import Choice
from orchestrator.decision import decide, failed_gates
from orchestrator.driver import add_blocks, run_sweep
from orchestrator.environment import describe, inputs
from orchestrator.gate import run_gate
from orchestrator.identity import other_packages
from orchestrator.index import open_index
from orchestrator.metrics.outputs import make_outputs
from orchestrator.plan import Plan
from orchestrator.records import Decision, Probe
from orchestrator.rounds import open_points
from orchestrator.shelf import write_card
from orchestrator.spec import dump_spec
from orchestrator.store import RunStore


def run(plan: Plan, store: RunStore, choice: Choice, console: Console, probes: Sequence[Probe] = ()) -> Decision:
    """Measure what the store does not hold yet, then decide from all of it. `probes`: of the search that found arms."""
    with store.lock():
        here = describe() | {"inputs": inputs(plan)}
        store.create(dump_spec(plan.spec), here)
        if changed := other_packages(store.environment(), here):
            note = f"this run began with other packages ({changed}); --fresh measures all of it with these"
            console.print(Text(note), soft_wrap=True)
        store.keep_probes(probes)
        run_sweep(plan, store, choice, console)
        if open_points(plan, store.looks()):
            # Before any block is added: a broken arm may be the fastest, and must not make others look hopeless.
            gates, _ = run_gate(plan, store, choice, console)
            add_blocks(plan, store, choice, console, failed_gates(plan, gates))
        gates, _ = run_gate(plan, store, choice, console)
        with console.status("deciding"):
            looks = store.looks()
            trials, requests = store.trials.records(), store.trials.requests()
            decision = decide(plan, trials, requests, gates, looks)
            store.write_outputs(make_outputs(plan, trials, requests, decision.summaries, store.trials.telemetry))
            store.write_decision(decision)
            # Last, because they are true only as long as nothing else changes.
            open_index(store)
            write_card(store)
    return decision
