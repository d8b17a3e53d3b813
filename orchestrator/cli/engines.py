"""`orchestrate engines`."""

from __future__ import annotations

import json
import sys

import typer

from orchestrator.cli.options import Json

app = typer.Typer(help="The engines that arms can name.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """The engines that arms can name."""


@app.command("list")
def list_engines(as_json: Json = False) -> None:
    """Show the engines, their methods and the version this environment holds."""
    from rich.console import Console
    from rich.table import Table

    from engines.base import EngineError
    from engines.registry import engine_names, get_engine

    rows = []
    for name in engine_names():
        engine = get_engine(name)
        try:
            software = engine.software(sys.executable)
        except EngineError as error:
            software = f"not usable here: {error}"
        rows.append({"engine": name, "methods": sorted(engine.methods), "software": software})
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table("engine", "methods", "in this environment")
    for row in rows:
        table.add_row(str(row["engine"]), ", ".join(row["methods"]), str(row["software"]))
    Console().print(table)
