"""What is served: `orchestrate watch`, the part of `orchestrate status` that is about targets, and opening a target."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engines.base import EngineError
from orchestrator.cli.options import DEPLOY, Deploy, Json

if TYPE_CHECKING:
    from rich.table import Table

    from orchestrator.promotion.live import Reading
    from orchestrator.promotion.site import Site
    from orchestrator.promotion.state import State
    from orchestrator.records import Interval

DRIFTED = 7


def watch(
    target: Annotated[str, typer.Argument(help="A target of deploy.yaml.")] = "local",
    seconds: Annotated[float, typer.Option("--for", min=10, help="How long the traffic is counted.")] = 20.0,
    deploy: Deploy = DEPLOY,
    as_json: Json = False,
) -> None:
    """Compare what a target does now with what its release promises. Exit codes: 0 kept, 7 drifted below."""
    from rich.console import Console

    from orchestrator.promotion import live

    reading: Reading | None = None
    with open_target(deploy, target) as site, Console(stderr=True).status("watching") as status:
        try:
            reading = live.read(site, round(seconds / 2), status.update)
            drifted = live.drift(reading, site.spec.smoke.tpot_tolerance)
        except EngineError as error:
            drifted = [f"it does not serve: {error}"]
    if as_json:
        told = live.as_json(reading) if reading else {}
        typer.echo(json.dumps(told | {"drifted": drifted}, indent=2))
    else:
        say(f"{target}: {'; '.join(drifted)}" if drifted else f"{target} keeps its promise")
        say(_evidence(reading) if reading else "nothing could be measured")
    raise typer.Exit(DRIFTED if drifted else 0)


def target_status(deploy: Path, target: str, as_json: bool) -> None:
    """What a target serves, next to the promise."""
    from rich.console import Console

    from orchestrator.promotion import live, state

    with open_target(deploy, target) as site, Console(stderr=True).status("asking") as status:
        found = state.state(site)
        reading = live.read(site, 2, status.update) if _serves(found) else None
        drifted = live.drift(reading, site.spec.smoke.tpot_tolerance) if reading else []
    if as_json:
        more = live.as_json(reading) | {"drifted": drifted} if reading else None
        typer.echo(json.dumps({"target": target, **state.as_json(found), "live": more}, indent=2))
        return
    say(_verdict(target, found, drifted))
    if found.releases:
        Console().print(_table(found))
    for lost in found.lost_by_reboot:
        say(f"a reboot would not bring back {lost}")
    if reading:
        say(_evidence(reading))


def is_target(deploy: Path, name: str) -> bool:
    from orchestrator.promotion.spec import load_deploy

    return name in load_deploy(deploy).targets


@contextmanager
def open_target(deploy: Path, target: str) -> Iterator[Site]:
    """The target, with SIGTERM as an interrupt, so that what is begun is undone."""
    from orchestrator.interrupts import sigterm_interrupts
    from orchestrator.promotion.site import open_site
    from orchestrator.promotion.spec import load_target

    with sigterm_interrupts(), open_site(target, load_target(deploy, target)) as site:
        yield site


def say(text: str) -> None:
    from rich.console import Console
    from rich.text import Text

    Console().print(Text(text), soft_wrap=True)


def _serves(found: State) -> bool:
    return any(one.part == "serving" and one.healthy for one in found.releases)


def _verdict(target: str, found: State, drifted: list[str]) -> str:
    """One line on a target."""
    busy = f"; a change is going on ({found.busy})" if found.busy else ""
    cut = "; a change was cut off: the same command again goes on or cleans up"
    left = cut if found.standing.change and not found.busy else ""
    serving = next((one for one in found.releases if one.part == "serving"), None)
    if serving is None:
        return f"{target}: nothing serves{busy}{left}"
    if not serving.healthy:
        return f"{target}: {serving.release.id} should serve and does not{busy}{left}"
    kept = "below its promise: " + "; ".join(drifted) if drifted else "keeps its promise"
    return f"{target}: {serving.release.id} ({serving.release.record.arm.name}) serves and {kept}{busy}{left}"


def _evidence(reading: Reading) -> str:
    """The numbers next to the promised ones, a line for the traffic and one for the probes."""
    record, live = reading.release.record, reading.acceptance_length
    tpot, accepted = _span(record.smoke_tpot_ms), _span(record.smoke_acceptance_length)
    traffic = f"{live.estimate:.2f} ({_span(live)})" if live else "unknown (too little traffic)"
    return "\n".join(
        [
            f"traffic: {reading.tok_s:.1f} tok/s in {reading.seconds:.0f} s, acceptance length {traffic}, "
            f"promised {_span(record.promise.acceptance_length)}",
            f"probes: TPOT {reading.tpot_ms:.2f} ms, promised {tpot}; acceptance length "
            f"{reading.probe_acceptance_length:.2f}, promised {accepted}; TTFT {reading.ttft_ms:.1f} ms "
            f"(p90 when measured {record.promise.ttft_ms_p90:.1f})",
        ]
    )


def _span(interval: Interval) -> str:
    return f"{interval.low:.2f}-{interval.high:.2f}"


def _table(state: State) -> Table:
    """The releases of a target: part, share, replicas, requests of the last ten minutes."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for title in ("release", "arm", "part", "share", "replicas", "requests", "failed"):
        table.add_column(title, overflow="fold")
    for one in state.releases:
        states = [f"{r.replica.host}:{r.replica.port} {_health(r.alive, r.healthy)}" for r in one.replicas]
        counts = [str(one.errors.requests), str(one.errors.failed)]
        table.add_row(
            one.release.id, one.release.record.arm.name, one.part, f"{one.share:g} %", "\n".join(states), *counts
        )
    return table


def _health(alive: bool, healthy: bool) -> str:
    if healthy:
        return "ready"
    return "not ready" if alive else "down"
