"""What a target is now: what its journal says, and what is really there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from engines.registry import get_engine
from orchestrator.errors import InputError
from orchestrator.promotion import canary, replicas
from orchestrator.promotion.canary import Errors
from orchestrator.promotion.host import HostError
from orchestrator.promotion.journal import Placed, Replica, Standing
from orchestrator.promotion.lock import holder
from orchestrator.promotion.release import Release
from orchestrator.promotion.site import Site

_LOG_S = 600.0


@dataclass(frozen=True)
class ReplicaState:
    """One replica now: whether its process runs, whether it takes requests, and why a reboot would lose it (empty where
    it comes back)."""

    replica: Replica
    alive: bool
    healthy: bool
    lost_by_reboot: str


@dataclass(frozen=True)
class ReleaseState:
    """One release on the target: its part in it (`serving`, `warm`, `stopped` after that, `coming`), its share in per
    cent, its replicas."""

    release: Release
    part: str
    share: float
    replicas: tuple[ReplicaState, ...]
    errors: Errors

    @property
    def healthy(self) -> bool:
        return all(state.healthy for state in self.replicas)


@dataclass(frozen=True)
class State:
    """A target now. `busy`: who is changing it; empty for nobody. `router_lost_by_reboot`: as a replica's."""

    standing: Standing
    releases: tuple[ReleaseState, ...]
    busy: str
    router_lost_by_reboot: str

    @property
    def lost_by_reboot(self) -> Sequence[str]:
        """What of it that serves a reboot would lose, with the reason."""
        serving = [one for release in self.releases if release.part == "serving" for one in release.replicas]
        reasons = {f"{one.replica.host}:{one.replica.port}": one.lost_by_reboot for one in serving}
        reasons["the router"] = self.router_lost_by_reboot
        return [f"{what}: {reason}" for what, reason in reasons.items() if reason]


def state(site: Site) -> State:
    """What the journal says, and what is really there."""
    standing = site.journal.standing()
    shares, log = site.router.shares(), site.router.requests(site.router.clock() - _LOG_S)
    owner = holder(site.first, site.lock)
    found = []
    for part, placed in _parts(standing):
        try:
            release = replicas.release_on(site, placed.release)
        except InputError:
            if part == "coming":  # it may not be there yet
                continue
            raise
        states = tuple(asyncio.run(_replica(site, release, replica)) for replica in placed.replicas)
        errors = canary.count_errors(log, release.id)
        found.append(ReleaseState(release, part, shares.get(release.id, 0.0), states, errors))
    lost = site.router.lost_by_reboot() if standing.serving else ""
    return State(standing, tuple(found), owner.words() if owner else "", lost)


def as_json(found: State) -> dict[str, object]:
    """For scripts."""
    return {
        "busy": found.busy or None,
        "lost_by_reboot": found.lost_by_reboot,
        "releases": [
            {
                "release": one.release.id,
                "arm": one.release.record.arm.name,
                "part": one.part,
                "share": one.share,
                "healthy": one.healthy,
                "requests": one.errors.requests,
                "failed": one.errors.failed,
                "replicas": [
                    {**dict(state.replica), "alive": state.alive, "healthy": state.healthy} for state in one.replicas
                ],
                "promise": one.release.record.promise.model_dump(mode="json"),
            }
            for one in found.releases
        ],
    }


def _parts(standing: Standing) -> list[tuple[str, Placed]]:
    before = "warm" if time.time() < standing.warm_until else "stopped"
    parts = [("serving", standing.serving), (before, standing.previous)]
    known = [(part, placed) for part, placed in parts if placed is not None]
    there = {placed.release for _, placed in known}
    if standing.change and standing.change.new.release not in there:
        known.append(("coming", standing.change.new))
    return known


async def _replica(site: Site, release: Release, replica: Replica) -> ReplicaState:
    engine = get_engine(release.record.arm.engine)
    host, unit = site.hosts[replica.host], site.unit(release, replica)
    try:
        alive, lost = site.supervisor.alive(host, unit), site.supervisor.lost_by_reboot(host, unit)
        with site.endpoint(release, replica) as endpoint:
            return ReplicaState(replica, alive, await engine.healthy(endpoint), lost)
    except HostError as error:
        return ReplicaState(replica, False, False, str(error))
