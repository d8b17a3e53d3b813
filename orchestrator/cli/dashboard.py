"""`orchestrate dashboard`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.options import DEPLOY, RUNS, Deploy


def dashboard(
    runs: Annotated[
        Path, typer.Argument(envvar="ORCHESTRATE_RUNS", metavar="RUNS_DIR", help="The folder that holds the runs.")
    ] = RUNS,
    host: Annotated[
        str, typer.Option(help="Address to listen on; any but a loopback one makes a token.")
    ] = "127.0.0.1",
    deploy: Deploy = DEPLOY,
    releases: Annotated[
        Path, typer.Option("--releases", envvar="ORCHESTRATE_RELEASES", help="The folder that holds the releases.")
    ] = Path("releases"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8050,
) -> None:
    """Serve runs and releases as pages: verdicts, figures, what is measured now, what serves where."""
    from orchestrator.errors import InputError

    try:
        from dashboards.app.places import Places
        from dashboards.app.server import open_server
    except ModuleNotFoundError as error:
        if error.name not in ("dash", "flask", "werkzeug"):
            raise
        raise InputError("the dashboard needs Dash: pip install 'orchestrate[dashboard]'") from error
    server = open_server(Places(runs, deploy, releases), host, port)
    typer.echo(f"dashboard: {server.address}")
    server.serve()
