"""The `orchestrate` program: its commands, and what happens to errors."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from engines.base import EngineError
from orchestrator.cli import compare, dashboard, doctor, engines, models, promote, runs, sweep, targets
from orchestrator.errors import InputError
from orchestrator.promotion.errors import PromotionError
from orchestrator.promotion.host import HostError

BAD_INPUT = 2
UNDONE = 6
INTERRUPTED = 130

app = typer.Typer(
    name="orchestrate",
    help="Choose and deploy the fastest lossless speculative decoding for a language model, on evidence.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command("sweep")(sweep.sweep)
app.command("plan")(sweep.plan)
app.command("status")(runs.status)
app.command("report")(runs.report)
app.command("promote")(promote.promote)
app.command("rollback")(promote.rollback)
app.command("releases")(promote.releases)
app.command("watch")(targets.watch)
app.command("compare")(compare.compare)
app.command("dashboard")(dashboard.dashboard)
app.command("doctor")(doctor.doctor)
app.add_typer(engines.app, name="engines")
app.add_typer(models.app, name="models")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"orchestrate {version('orchestrate')}")
        raise typer.Exit


@app.callback()
def _options(
    show: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Exit codes: 0 a winner, 3 a tie, 4 equivalence failed, 5 invalid measurements, 6 a failed promotion was undone,
    7 production is below its promise, 8 a run regressed (compare), 2 bad input or refused, 1 a fault of ours."""


def main() -> None:
    """Run the program. Bad input is one line and exit code 2; anything unforeseen keeps its traceback and exits 1."""
    try:
        app()
    except (InputError, EngineError, HostError) as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(BAD_INPUT)
    except PromotionError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(UNDONE)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
