"""`orchestrate status` and `orchestrate report`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.options import DEPLOY, RUNS, Deploy, Json, Run, Runs
from orchestrator.cli.targets import is_target, target_status

if TYPE_CHECKING:
    from orchestrator.store import RunStore


def status(
    name: Annotated[str | None, typer.Argument(help="A target of deploy.yaml, or a run as elsewhere.")] = None,
    runs: Runs = RUNS,
    deploy: Deploy = DEPLOY,
    as_json: Json = False,
) -> None:
    """Show what a target serves next to its promise, or how far a run is and what it decided."""
    if name and deploy.exists() and is_target(deploy, name):
        target_status(deploy, name, as_json)
    else:
        _run_status(name, runs, as_json)


def _run_status(run: str | None, runs: Path, as_json: bool) -> None:
    from rich.console import Console

    from orchestrator.cli.tables import progress_table, summary_table
    from orchestrator.looks import sentence
    from orchestrator.store import find_run

    store = find_run(runs, run)
    entries, decision = store.entries(), store.decision()
    if as_json:
        latest = {entry.trial: entry.model_dump(mode="json") for entry in entries}
        document = {
            "run": store.folder.name,
            "trials": list(latest.values()),
            "looks": [look.model_dump(mode="json") for look in store.looks()],
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
        for look in store.looks():
            console.print(sentence(look), highlight=False, soft_wrap=True)


def report(
    run: Run = None,
    runs: Runs = RUNS,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where to write it.")] = None,
    png: Annotated[bool, typer.Option("--png", help="Each figure as a PNG, too; needs Chromium.")] = False,
    pdf: Annotated[bool, typer.Option("--pdf", help="Each figure as a PDF, too; needs Chromium.")] = False,
) -> None:
    """Write a run's report as one self-contained HTML file, and its figures as pictures beside it."""
    from dashboards.report import write_report
    from orchestrator.store import find_run

    store = find_run(runs, run)
    path = write_report(store, output or store.folder / "report.html")
    typer.echo(path)
    kinds = [kind for kind, wanted in (("png", png), ("pdf", pdf)) if wanted]
    if kinds:
        _pictures(store, path.with_name(f"{path.stem}-figures"), kinds)


def _pictures(store: RunStore, folder: Path, kinds: list[str]) -> None:
    from rich.console import Console

    from dashboards.pictures import write_pictures

    with Console(stderr=True).status("starting Chromium") as status:
        written = write_pictures(store, folder, kinds, status.update)
    typer.echo(f"{folder}: {len(written)} pictures")
