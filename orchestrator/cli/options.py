"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

SweepFile = Annotated[Path, typer.Argument(help="The sweep file.", metavar="FILE")]
Profile = Annotated[str, typer.Option(help="Where to run: a profile of the file, or auto for the first that fits.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a value: workload.max_tokens=64.")
]
Runs = Annotated[Path, typer.Option("--runs", envvar="ORCHESTRATE_RUNS", help="The folder that holds the runs.")]
Run = Annotated[str | None, typer.Argument(help="A run, or the beginning of its name; the newest if left out.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document for scripts.")]

Deploy = Annotated[Path, typer.Option("--deploy", envvar="ORCHESTRATE_DEPLOY", help="The file that names the targets.")]

RUNS = Path("runs")
DEPLOY = Path("deploy.yaml")
