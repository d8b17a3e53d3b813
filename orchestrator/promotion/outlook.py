"""What promoting a release would do, and what speaks against it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from engines.digests import digest
from orchestrator.errors import InputError
from orchestrator.promotion import packages, preflight, replicas
from orchestrator.promotion.host import HostError
from orchestrator.promotion.journal import Change, Kind, Placed, Replica, Standing
from orchestrator.promotion.preflight import Refusal
from orchestrator.promotion.release import Release, packages_of
from orchestrator.promotion.site import Site
from orchestrator.records import Decision
from orchestrator.store import read_record

_COMMAND_S = 60.0


@dataclass(frozen=True)
class Outlook:
    """What a promotion would do, and what speaks against it."""

    lines: tuple[str, ...]
    refusals: tuple[Refusal, ...]


def outlook(site: Site, release: Release) -> Outlook:
    """Ask the target everything that can be known before anything is changed there."""
    record = release.record
    decision = read_record(release.folder / "decision.json", Decision)
    refusals = preflight.of_decision(decision, record, site.name, site.spec)
    facts = {name: host.facts(site.root) for name, host in site.hosts.items()}
    for name in site.hosts:
        refusals += preflight.of_host(name, record, facts[name], _cpu(site, name), _needed(site, release, name))
        refusals += preflight.of_supervisor(name, site.spec, facts[name])
        refusals += _of_image(site, release, name) if site.spec.image else _of_packages(site, release, name)
    refusals += _of_models(release) + _of_router(site)
    standing = site.journal.standing()
    try:
        placed = replicas.place(site, release, standing, facts)
    except InputError as error:
        refusals.append(Refusal(str(error)))
        placed = ()
    lines = [
        *_lines(site, release, standing, Placed(release.id, placed)),
        f"reboot    {preflight.after_reboot(site.spec, facts)}",
    ]
    return Outlook(tuple(lines), tuple(refusals))


def _cpu(site: Site, name: str) -> str:
    table = site.hosts[name].run(["cat", "/proc/cpuinfo"], timeout_s=_COMMAND_S).out
    models = [line.partition(":")[2].strip() for line in table.splitlines() if line.startswith("model name")]
    return models[0] if models else "an unknown CPU"


def _needed(site: Site, release: Release, name: str) -> int:
    """Bytes of the models that the host does not have."""
    missing = [
        Path(place) for found, place in release.models.items() if not site.hosts[name].listing(site.model_folder(found))
    ]
    return sum(file.stat().st_size for place in missing for file in place.rglob("*") if file.is_file())


def _of_packages(site: Site, release: Release, name: str) -> list[Refusal]:
    run = partial(site.hosts[name].run, timeout_s=packages.TIMEOUT_S)
    there = packages.describe([site.deployment(release).interpreter], run)
    measured = packages_of(release.folder)
    return preflight.of_packages(name, packages.differences(measured["packages"], there["packages"]))  # type: ignore[arg-type]


def _of_image(site: Site, release: Release, name: str) -> list[Refusal]:
    """An image that is not on the host yet is pulled by its digest; what it holds shows in its server's identity."""
    command = ["docker", "image", "inspect", "--format", "{{.Id}}", str(site.spec.image)]
    try:
        there = site.hosts[name].run(command, timeout_s=_COMMAND_S)
    except HostError:  # without docker, which is a refusal of its own
        return []
    return preflight.of_image(name, release.record.deployment.image, there.out.strip() if there.code == 0 else None)


def _of_models(release: Release) -> list[Refusal]:
    found = []
    for expected, place in release.models.items():
        if not Path(place).is_dir():
            found.append(Refusal(f"{place}: the model is not on this machine any more"))
        elif digest(Path(place)) != expected:
            found.append(Refusal(f"{place}: the model was changed since it was measured (digest mismatch)"))
    return found


def _of_router(site: Site) -> list[Refusal]:
    reason = site.router.check()
    spec = site.spec.router
    if not reason and spec.port in replicas.listening(site.first) and not site.router.running():
        reason = f"{site.first.name}: port {spec.port} is taken by something that is not this target's router"
    return [Refusal(reason)] if reason else []


def _lines(site: Site, release: Release, standing: Standing, placed: Placed) -> Sequence[str]:
    record, spec = release.record, site.spec
    promised = record.promise
    serving = standing.serving.release if standing.serving else "nothing"
    canary = ", ".join(f"{stage.share:g} % for {stage.for_s:g} s" for stage in spec.canary)
    engine = record.arm.engine + (" (simulated)" if record.simulated else "")
    return [
        f"release   {release.name}: {engine}, {record.arm.name}, from run {record.run}",
        f"promise   {promised.output_tok_s.estimate:.1f} tok/s, TPOT {promised.tpot_ms.estimate:.2f} ms, acceptance "
        f"length {promised.acceptance_length.estimate:.2f} at {promised.concurrency} at once",
        f"target    {site.name}: {', '.join(site.hosts)}; {spec.supervisor}; {serving} serves now",
        f"replicas  {', '.join(map(_where, placed.replicas))}",
        f"canary    {canary or 'none'}" if standing.serving else "canary    none: there is nothing to compare with",
        f"after     the old release stays warm for {spec.warm_for_s:g} s",
        *([f"before    {_left_open(standing.change, release)}"] if standing.change else []),
    ]


def _where(replica: Replica) -> str:
    return f"{replica.host}:{replica.port}" + (f" on {' + '.join(replica.gpus)}" if replica.gpus else "")


def _left_open(change: Change, release: Release) -> str:
    goes_on = change.kind is Kind.PROMOTE and change.new.release == release.id and not change.failed
    what = "goes on" if goes_on else "is finished" if change.turned else "is undone"
    return f"a {change.kind} to {change.new.release} that was cut off {what}"
