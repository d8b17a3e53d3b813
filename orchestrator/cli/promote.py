"""`orchestrate promote`, `orchestrate rollback` and `orchestrate releases`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.options import DEPLOY, RUNS, Deploy, Json, Runs
from orchestrator.cli.targets import open_target
from orchestrator.cli.telling import Telling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from orchestrator.promotion.outlook import Outlook
    from orchestrator.promotion.release import Release
    from orchestrator.records import Interval

RELEASES = Path("releases")

Releases = Annotated[
    Path, typer.Option("--releases", envvar="ORCHESTRATE_RELEASES", help="The folder that holds the releases.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan and change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
BreakLock = Annotated[
    bool, typer.Option("--break-lock", help="Take the lock of a process on another machine that is known to be dead.")
]


def promote(
    run: Annotated[
        str | None, typer.Argument(help="A run, or a release made before; the newest run if left out.")
    ] = None,
    to: Annotated[str, typer.Option("--to", metavar="TARGET", help="A target of deploy.yaml.")] = "local",
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="REASON", help="Go on in spite of a refusal that says it can be lifted."),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    break_lock: BreakLock = False,
    deploy: Deploy = DEPLOY,
    runs: Runs = RUNS,
    releases: Releases = RELEASES,
    as_json: Json = False,
) -> None:
    """Freeze a run's decision into a release and bring it to all traffic of a target, step by step.

    Whatever fails, the old release serves. Exit codes: 0 it serves, 2 refused, 6 a step failed and was undone.
    """
    from orchestrator.errors import InputError
    from orchestrator.promotion.outlook import outlook
    from orchestrator.promotion.preflight import OVERRIDES
    from orchestrator.promotion.promote import promote as carry_out

    unknown = [reason for reason in allow or [] if reason not in OVERRIDES]
    if unknown:
        raise InputError(f"--allow {unknown[0]}: there is no such reason; there are {', '.join(OVERRIDES)}")
    telling = Telling("promote", to, as_json)
    with telling.told(), open_target(deploy, to) as site:
        release = _release(run, runs, releases)
        telling.document |= {"release": release.id, "name": release.name}
        _show(telling, outlook(site, release), allow or [])
        if dry_run:
            return
        telling.confirm(yes, f"Promote {release.name} to {to}?")
        with telling.changing(site):
            telling.say(carry_out(site, release, telling.progress, break_lock))


def rollback(
    target: Annotated[str, typer.Argument(help="A target of deploy.yaml.")] = "local",
    dry_run: DryRun = False,
    yes: Yes = False,
    break_lock: BreakLock = False,
    deploy: Deploy = DEPLOY,
    as_json: Json = False,
) -> None:
    """Go back to the release before. A promotion that is not through yet is undone instead."""
    from orchestrator.promotion.rollback import outlook
    from orchestrator.promotion.rollback import rollback as carry_out

    telling = Telling("rollback", target, as_json)
    with telling.told(), open_target(deploy, target) as site:
        telling.plan(outlook(site))
        if dry_run:
            return
        telling.confirm(yes, f"Roll {target} back?")
        with telling.changing(site):
            telling.say(carry_out(site, telling.progress, break_lock))


def releases(folder: Releases = RELEASES, as_json: Json = False) -> None:
    """List the releases made here, the newest last, and whether each is what its name says."""
    from rich.console import Console

    from orchestrator.errors import InputError
    from orchestrator.promotion.release import list_releases, load_release

    found: list[Release | str] = []
    for path in list_releases(folder):
        try:
            found.append(load_release(path))
        except InputError as error:
            found.append(str(error))
    if as_json:
        rows = [{"error": one} if isinstance(one, str) else _release_json(one) for one in found]
        typer.echo(json.dumps(rows, indent=2))
        return
    Console().print(_table(found))


def _release(run: str | None, runs: Path, folder: Path) -> Release:
    """A release by its name or id, else the release of a run."""
    from orchestrator.promotion.freeze import freeze
    from orchestrator.promotion.release import list_releases, load_release
    from orchestrator.store import find_run

    made = [path for path in list_releases(folder) if run and (path.name == run or path.name.endswith(f"-{run}"))]
    return load_release(made[-1]) if made else freeze(find_run(runs, run), folder)


def _show(telling: Telling, found: Outlook, allow: list[str]) -> None:
    """The plan. InputError with every refusal that is not lifted."""
    from orchestrator.errors import InputError
    from orchestrator.promotion.preflight import standing_refusals

    standing = standing_refusals(found.refusals, allow)
    allowed = [f"allowed   {refusal.reason}" for refusal in found.refusals if refusal not in standing]
    telling.plan([*found.lines, *allowed])
    if standing:
        telling.document |= {"outcome": "refused", "refusals": [asdict(refusal) for refusal in standing]}
        raise InputError("refused: " + "\nrefused: ".join(refusal.words() for refusal in standing))


def _release_json(release: Release) -> dict[str, object]:
    record = release.record
    promise = record.promise.model_dump(mode="json")
    return {"release": release.id, "name": release.name, "run": record.run, "arm": record.arm.name, "promise": promise}


def _table(releases: Sequence[Release | str]) -> Table:
    """Releases made here with what they promise; a text stands for one that is not what its name says."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for title in ("release", "run", "tok/s", "TPOT ms", "acceptance length"):
        table.add_column(title, overflow="fold")
    for one in releases:
        if isinstance(one, str):
            table.add_row(Text(one, style="red"))
            continue
        promise = one.record.promise
        speed = f"{promise.output_tok_s.estimate:.1f}"
        table.add_row(one.name, one.record.run, speed, _interval(promise.tpot_ms), _interval(promise.acceptance_length))
    return table


def _interval(value: Interval) -> str:
    return f"{value.estimate:.2f} ({value.low:.2f}-{value.high:.2f})"
