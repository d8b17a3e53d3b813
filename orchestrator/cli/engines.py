"""`orchestrate engines`."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from orchestrator.cli.options import Json

app = typer.Typer(help="The engines that arms can name.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="An environment: vllm-cpu, vllm-cuda or sglang-cuda.")]
AnyName = Annotated[str | None, typer.Argument(help="One environment; all if left out.")]


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


@app.command()
def install(name: Name) -> None:
    """Make the isolated environment of an engine. Installing it again only checks it."""
    from rich.console import Console

    from engines import envs

    console = Console(stderr=True)
    with console.status(f"installing {name}") as line:
        python = envs.install(name, progress=lambda stage, s: line.update(f"{name}: {stage} ({s:.0f} s)"))
    typer.echo(python)


@app.command()
def check(name: AnyName = None, as_json: Json = False) -> None:
    """Show which engine environments are installed, and the command that helps. With NAME, exits 1 unless it is."""
    from dataclasses import asdict

    from rich.console import Console
    from rich.table import Table

    from engines.envs import ENVIRONMENTS, environment
    from engines.envs.inspection import inspect

    entries = [environment(name)] if name else list(ENVIRONMENTS.values())
    findings = [inspect(entry) for entry in entries]
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        table = Table("environment", "engine", "state", "version", "on this machine", "what helps")
        for found in findings:
            table.add_row(
                found.name, found.engine, found.state, found.version, found.obstacle or "can run", found.remedy
            )
        Console().print(table)
    raise typer.Exit(int(name is not None and not findings[0].usable))
