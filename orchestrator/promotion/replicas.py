"""A release's replicas on a target: place, start, wait until they are what the release says, stop."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence

from engines.base import EngineError, check_identity
from engines.registry import get_engine
from orchestrator.engine_log import telling_line
from orchestrator.errors import InputError
from orchestrator.promotion import tree
from orchestrator.promotion.errors import PromotionError
from orchestrator.promotion.host import Host, HostFacts
from orchestrator.promotion.journal import Placed, Replica, Standing
from orchestrator.promotion.release import ID_LENGTH, RELEASE, Release, ReleaseRecord
from orchestrator.promotion.site import Site

COMMAND_S = 60.0
_SUMS_S = 300.0
_POLL_S = 0.3
_LOG_LINES = 60
_LISTEN = "0A"
_SAME_AS_MEASURED = ("engine", "version", "method", "budget", "chain", "block_size", "dtype", "attention_backend")
_SETTINGS_AS_MEASURED = ("prefill_attention_backend",)
"""Of the settings, those of which another one would be another engine; where the measured server said them."""

Say = Callable[[str], None]


def place(site: Site, release: Release, standing: Standing, facts: Mapping[str, HostFacts]) -> tuple[Replica, ...]:
    """Where a release runs already, warm or because its promotion was cut off, or where it has room: a replica on as
    many GPUs as it was measured on, until fewer are left, or `replicas` of a CPU release a host, on ports that nothing
    has. InputError without room."""
    coming = {standing.change.new.release: standing.change.new} if standing.change else {}
    known = (standing.known | coming).get(release.id)
    if known is not None:
        return known.replicas
    found: list[Replica] = []
    for name, host in site.hosts.items():
        shares = _gpu_shares(name, release, facts[name]) if release.record.gpu else [()] * site.spec.replicas
        ports = _free_ports(site, host, standing, len(shares))
        found += [Replica(host=name, port=port, gpus=gpus) for port, gpus in zip(ports, shares, strict=True)]
    return tuple(found)


def _gpu_shares(name: str, release: Release, facts: HostFacts) -> list[tuple[str, ...]]:
    """The host's GPUs, in their order, a replica's together."""
    needed, there = release.record.gpus, [gpu.uuid for gpu in facts.gpus]
    if len(there) < needed:
        raise InputError(f"{name}: {len(there)} GPUs, a replica needs {needed}")
    return [tuple(there[first : first + needed]) for first in range(0, len(there) - needed + 1, needed)]


def _free_ports(site: Site, host: Host, standing: Standing, count: int) -> list[int]:
    first, last = site.spec.ports
    taken = standing.ports(host.name) | listening(host)
    free = [port for port in range(first, last + 1) if port not in taken]
    if len(free) < count:
        raise InputError(f"{host.name}: {len(free)} ports of {first} to {last} are free, {count} are needed")
    return free[:count]


def listening(host: Host) -> set[int]:
    """TCP ports of the host that something listens on."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        rows = [line.split() for line in host.run(["cat", table], timeout_s=COMMAND_S).out.splitlines()[1:]]
        found |= {int(row[1].rpartition(":")[2], 16) for row in rows if len(row) > 3 and row[3] == _LISTEN}
    return found


def release_on(site: Site, identifier: str) -> Release:
    """A release as it lies on the target's first host; `start` verifies it. InputError where it is not there."""
    folder, host = site.release_folder(identifier), site.first
    sums, data = host.read(folder / tree.SUMS), host.read(folder / RELEASE)
    if sums is None or data is None:
        raise InputError(f"{host.name}:{folder}: the release is not there any more")
    if hashlib.sha256(data).hexdigest() != tree.entries(sums.decode(errors="replace")).get(RELEASE):
        raise InputError(f"{host.name}:{folder}: this release was tampered with: {RELEASE} was changed")
    return Release(identifier, site.local_name(identifier), ReleaseRecord.model_validate_json(data))


def verify(site: Site, host: Host, identifier: str) -> None:
    """InputError unless the release's folder on the host is what its name says, file by file."""
    folder = site.release_folder(identifier)
    where = f"{host.name}:{folder}"
    sums = (host.read(folder / tree.SUMS) or b"").decode(errors="replace")
    if tree.identity(sums)[:ID_LENGTH] != identifier:
        raise InputError(f"{where}: this release was tampered with: {tree.SUMS} was changed; it is never started")
    there, listed = set(host.listing(folder)) - {tree.SUMS}, set(tree.entries(sums))
    command = ["env", "-C", str(folder), "sha256sum", "--check", "--strict", "--quiet", tree.SUMS]
    done = host.run(command, timeout_s=_SUMS_S)
    if done.code or there != listed:
        reasons = [*sorted(there ^ listed), *(done.out + done.err).splitlines(), f"exit code {done.code}"]
        raise InputError(f"{where}: this release was tampered with: {reasons[0]}; it is never started")


def start(site: Site, release: Release, placed: Placed) -> None:
    """Start every replica that does not run."""
    for replica in placed.replicas:
        host, unit = site.hosts[replica.host], site.unit(release, replica)
        verify(site, host, release.id)
        site.supervisor.install(host, unit)
        site.supervisor.start(host, unit)


def keep(site: Site, release: Release, placed: Placed) -> None:
    """Have replicas that run go on for good, however long they were to stay warm."""
    for replica in placed.replicas:
        site.supervisor.start(site.hosts[replica.host], site.unit(release, replica))


def expire(site: Site, release: Release, placed: Placed, after_s: float) -> None:
    """Have replicas stop by themselves after so many seconds."""
    for replica in placed.replicas:
        site.supervisor.expire(site.hosts[replica.host], site.unit(release, replica), after_s)


def wait_ready(site: Site, release: Release, placed: Placed, say: Say) -> None:
    """Wait until every replica takes requests and says it is the release. PromotionError for one that does not."""
    limit = site.spec.ready_s or release.record.deployment.ready_timeout_s
    deadline = time.monotonic() + limit
    for replica in placed.replicas:
        say(f"waiting for {replica.host}:{replica.port}")
        while not asyncio.run(_answers(site, release, replica)):
            host, unit = site.hosts[replica.host], site.unit(release, replica)
            if time.monotonic() > deadline:
                raise PromotionError(f"{_of(replica)} is not ready after {limit:g} s{_quote(site, release, replica)}")
            if not site.supervisor.alive(host, unit):
                raise PromotionError(f"{_of(replica)} ended{_quote(site, release, replica)}")
            time.sleep(_POLL_S)
        asyncio.run(_check(site, release, replica))


def healthy(site: Site, release: Release, placed: Placed) -> bool:
    """Whether every replica runs and takes requests now."""
    units = [(site.hosts[replica.host], site.unit(release, replica)) for replica in placed.replicas]
    alive = all(site.supervisor.alive(host, unit) for host, unit in units)
    return alive and all(asyncio.run(_answers(site, release, replica)) for replica in placed.replicas)


def remove(site: Site, release: Release, replicas: Sequence[Replica]) -> None:
    """Stop the replicas and remove what was installed for them. Nothing to do for those that are not there."""
    for replica in replicas:
        site.supervisor.remove(site.hosts[replica.host], site.unit(release, replica))


async def _answers(site: Site, release: Release, replica: Replica) -> bool:
    engine = get_engine(release.record.arm.engine)
    with site.endpoint(release, replica) as endpoint:
        return await engine.healthy(endpoint)


async def _check(site: Site, release: Release, replica: Replica) -> None:
    """PromotionError where the server's own words are not those of the server that was measured."""
    record, engine = release.record, get_engine(release.record.arm.engine)
    try:
        with site.endpoint(release, replica) as endpoint:
            identity = await engine.identify(endpoint)
        check_identity(identity, record.arm, site.deployment(release))
    except EngineError as error:
        raise PromotionError(f"{_of(replica)}: {error}") from error
    settings = record.identity.get("settings")
    told = settings if isinstance(settings, Mapping) else {}
    pairs = [(name, record.identity.get(name), getattr(identity, name)) for name in _SAME_AS_MEASURED]
    pairs += [(name, told[name], identity.settings.get(name)) for name in _SETTINGS_AS_MEASURED if name in told]
    for name, measured, actual in pairs:
        if measured != actual:
            raise PromotionError(f"{_of(replica)} says {name} = {actual!r}, the measured server said {measured!r}")


def _of(replica: Replica) -> str:
    return f"the replica on {replica.host}:{replica.port}"


def _quote(site: Site, release: Release, replica: Replica) -> str:
    log = site.supervisor.log(site.hosts[replica.host], site.unit(release, replica), _LOG_LINES)
    line = telling_line(log)
    return f": {line}" if line else "; its log is empty"
