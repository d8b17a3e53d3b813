"""`orchestrate models`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from orchestrator.cli.options import Json

app = typer.Typer(help="Target models and drafters.", no_args_is_help=True)


@app.command("list")
def list_models(as_json: Json = False) -> None:
    """Show the models that profiles can name and whether they are here."""
    from rich.console import Console
    from rich.table import Table

    from orchestrator.models import known

    entries = known()
    if as_json:
        rows = [{"name": e.name, "state": e.state.value, "bytes": e.size, "about": e.about} for e in entries]
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table("model", "state", "MB", "what it is")
    for entry in entries:
        size = f"{entry.size / 1e6:.0f}" if entry.size else ""
        table.add_row(entry.name, entry.state.value, size, entry.about)
    Console().print(table)


@app.command()
def fetch(name: Annotated[str, typer.Argument(help="A known model, a folder or a hub id (org/name).")]) -> None:
    """Fetch a model into the cache. Fetching it again only checks it."""
    from rich.console import Console

    from orchestrator import models

    console = Console(stderr=True)
    with console.status(f"fetching {name}") as line:
        model = models.fetch(name, progress=lambda stage, s: line.update(f"{name}: {stage} ({s:.0f} s)"))
    typer.echo(model.path)
