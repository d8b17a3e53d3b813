"""The serving release against what it promises: its traffic and probes, looked at for a while."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from engines.base import SpecCounters
from engines.registry import get_engine
from orchestrator.errors import InputError
from orchestrator.promotion import probes, replicas
from orchestrator.promotion.journal import Placed
from orchestrator.promotion.release import Release
from orchestrator.promotion.site import Site
from orchestrator.promotion.smoke import acceptance_length
from orchestrator.records import Interval
from orchestrator.statistics import Bootstrap, ratio_interval

MIN_WINDOWS = 5
"""Windows with traffic from which the live acceptance length gets an interval."""
_WINDOW_S = 2.0
_CUT_STEPS = 0.01
"""Share of the acceptance length that the last step of each answer, which is cut, can move."""


@dataclass(frozen=True)
class Reading:
    """The serving release, looked at for a while: pooled over the router's traffic and the probes'.

    `acceptance_length` is that of the traffic, None where too little came; the others are the probes'.
    """

    release: Release
    seconds: float
    tok_s: float
    acceptance_length: Interval | None
    probe_acceptance_length: float
    tpot_ms: float
    ttft_ms: float
    probe_failures: int


def read(site: Site, windows: int, doing: Callable[[str], None]) -> Reading:
    """Watch the serving release for `windows` times two seconds, then probe it. InputError where nothing serves."""
    serving = site.journal.standing().serving
    if serving is None:
        raise InputError(f"{site.name}: nothing is deployed there; `orchestrate promote --to {site.name}` does it")
    release = replicas.release_on(site, serving.release)
    began, steps = time.monotonic(), list[SpecCounters]()
    before = asyncio.run(_counters(site, release, serving))
    for number in range(windows):
        doing(f"counting tokens, {number + 1} of {windows}")
        time.sleep(_WINDOW_S)
        after = asyncio.run(_counters(site, release, serving))
        steps.append(after - before)
        before = after
    seconds = time.monotonic() - began
    doing("probing")
    return asyncio.run(_probe(site, release, steps, seconds))


def drift(reading: Reading, tolerance: float) -> list[str]:
    """In which ways production is below its promise; empty where it keeps it."""
    record, found = reading.release.record, list[str]()
    live, promised = reading.acceptance_length, record.promise.acceptance_length
    if reading.probe_failures:
        return [f"{reading.probe_failures} of {len(record.smoke)} probes failed"]
    if live is not None and live.high < promised.low * (1 - _CUT_STEPS):
        found.append(
            f"acceptance length of the traffic {live.estimate:.2f} ({live.low:.2f}-{live.high:.2f}) lies below the "
            f"promised interval, which begins at {promised.low:.2f}: the drafter no longer fits the traffic"
        )
    if reading.probe_acceptance_length < record.smoke_acceptance_length.low * (1 - _CUT_STEPS):
        found.append(
            f"acceptance length of the probes {reading.probe_acceptance_length:.2f} lies below the promised interval, "
            f"which begins at {record.smoke_acceptance_length.low:.2f}"
        )
    most = record.smoke_tpot_ms.high * (1 + tolerance)
    if reading.tpot_ms > most:
        found.append(f"TPOT {reading.tpot_ms:.2f} ms lies above the promise, {most:.2f} ms with its tolerance")
    return found


def live_acceptance(windows: Sequence[SpecCounters], confidence: float) -> Interval | None:
    """Acceptance length over windows with traffic; None where there are fewer than MIN_WINDOWS of them."""
    busy = [window for window in windows if window.verify_steps > 0]
    if len(busy) < MIN_WINDOWS:
        return None
    accepted = np.array([window.accepted for window in busy], dtype=float)
    if not accepted.any():
        return Interval(estimate=1.0, low=1.0, high=1.0)
    steps = np.array([window.verify_steps for window in busy], dtype=float)
    bootstrap = Bootstrap(confidence, 4000, 0)
    extra = ratio_interval(accepted, steps, bootstrap, bootstrap.stream("live"))
    return Interval(estimate=1 + extra.estimate, low=1 + extra.low, high=1 + extra.high)


def as_json(reading: Reading) -> dict[str, object]:
    """For scripts."""
    values = {name: value for name, value in vars(reading).items() if name not in ("release", "acceptance_length")}
    live = reading.acceptance_length
    told = {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in values.items()}
    return {"release": reading.release.id, "acceptance_length": live.model_dump() if live else None, **told}


async def _counters(site: Site, release: Release, placed: Placed) -> SpecCounters:
    """Steps, accepted and emitted tokens of all replicas together. EngineError where one does not answer.

    What a server that does not count accepted tokens emitted beyond one a step, it accepted.
    """
    engine, total = get_engine(release.record.arm.engine), SpecCounters()
    for replica in placed.replicas:
        with site.endpoint(release, replica) as endpoint:
            one = await engine.counters(endpoint)
        accepted = one.accepted if "accepted" in engine.server_counts else max(0, one.emitted - one.verify_steps)
        total = SpecCounters(
            verify_steps=total.verify_steps + one.verify_steps,
            accepted=total.accepted + accepted,
            emitted=total.emitted + one.emitted,
        )
    return total


async def _probe(site: Site, release: Release, windows: Sequence[SpecCounters], seconds: float) -> Reading:
    record = release.record
    with site.front(release) as endpoint:
        answers = await probes.ask(release, endpoint, record)
    return Reading(
        release=release,
        seconds=seconds,
        tok_s=sum(window.emitted for window in windows) / seconds if seconds else 0.0,
        acceptance_length=live_acceptance(windows, record.confidence),
        probe_acceptance_length=acceptance_length(answers),
        tpot_ms=1e3 * float(answers["tpot"].mean()),
        ttft_ms=1e3 * float(answers["ttft"].mean()),
        probe_failures=int((~answers["ok"]).sum()),
    )
