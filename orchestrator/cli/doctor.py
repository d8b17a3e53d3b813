"""`orchestrate doctor`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import typer

from orchestrator.cli.options import RUNS, Json, Runs


def doctor(runs: Runs = RUNS, as_json: Json = False) -> None:
    """Check what a sweep needs of this machine. Exits 1 when something is missing."""
    from rich.console import Console
    from rich.table import Table

    from orchestrator.doctor import State, examine

    findings = examine(Path(runs))
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        colours = {State.GOOD: "green", State.WARNING: "yellow", State.MISSING: "red"}
        table = Table("check", "state", "found", "what helps")
        for finding in findings:
            state = f"[{colours[finding.state]}]{finding.state.value}[/]"
            table.add_row(finding.check, state, finding.found, finding.remedy)
        Console().print(table)
    raise typer.Exit(int(any(finding.state is State.MISSING for finding in findings)))
