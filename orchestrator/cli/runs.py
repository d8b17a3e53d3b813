"""`orchestrate status` and `orchestrate report`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.options import RUNS, Json, Run, Runs


def status(run: Run = None, runs: Runs = RUNS, as_json: Json = False) -> None:
    """Show how far a run is and what it decided."""
    from rich.console import Console

    from orchestrator.cli.tables import progress_table, summary_table
    from orchestrator.store import find_run

    store = find_run(runs, run)
    entries, decision = store.entries(), store.decision()
    if as_json:
        latest = {entry.trial: entry.model_dump(mode="json") for entry in entries}
        document = {
            "run": store.folder.name,
            "trials": list(latest.values()),
            "decision": decision.model_dump(mode="json") if decision else None,
        }
        typer.echo(json.dumps(document, indent=2))
        return
    console = Console()
    console.print(f"[bold]{store.folder.name}[/bold]  {decision.sentence if decision else 'not decided yet'}")
    if decision:
        console.print(summary_table(decision))
    else:
        console.print(progress_table(entries))


def report(
    run: Run = None,
    runs: Runs = RUNS,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where to write it.")] = None,
) -> None:
    """Write a run's report as one self-contained HTML file."""
    from dashboards.report import write_report
    from orchestrator.store import find_run

    store = find_run(runs, run)
    typer.echo(write_report(store, output or store.folder / "report.html"))
