"""What targets serve, as their journals and routers say it. Nothing is changed, and no engine is asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from engines.base import EngineError
from engines.messages import one_line
from orchestrator.damage import DAMAGE
from orchestrator.errors import InputError
from orchestrator.promotion import replicas
from orchestrator.promotion.errors import PromotionError
from orchestrator.promotion.host import HostError
from orchestrator.promotion.journal import Entry, Mark, Placed, Standing, replay
from orchestrator.promotion.lock import holder
from orchestrator.promotion.release import Release, list_releases, load_release
from orchestrator.promotion.site import Site, open_site
from orchestrator.promotion.spec import LocalTarget, TargetSpec, load_deploy

_FAILURES = (*DAMAGE, EngineError, HostError, PromotionError)


@dataclass(frozen=True)
class Part:
    """A release on a target: its part in it (serving, warm, coming), its share of the sessions in per cent. `release`
    is None where its folder on the target cannot be read."""

    name: str
    placed: Placed
    share: float
    release: Release | None


@dataclass(frozen=True)
class Step:
    """A change of a target, from its journal. `outcome`: done, undone, going on."""

    kind: str
    release: str
    began: str
    outcome: str
    reason: str


@dataclass(frozen=True)
class Target:
    """A target of deploy.yaml. `parts` and `history` (newest first) are empty where it was not asked; `busy` says who
    is changing it; `problem` why it could not be read."""

    name: str
    spec: TargetSpec
    asked: bool
    standing: Standing = field(default_factory=Standing)
    parts: tuple[Part, ...] = ()
    history: tuple[Step, ...] = ()
    busy: str = ""
    problem: str = ""

    @property
    def hosts(self) -> str:
        return "this machine" if isinstance(self.spec, LocalTarget) else ", ".join(h.address for h in self.spec.hosts)


def read_targets(deploy: Path, asked: str) -> list[Target]:
    """Targets of this machine, and the one `asked` for; the others by name only, because asking them means to log in
    somewhere. InputError where the file cannot be read."""
    targets = load_deploy(deploy).targets
    return [
        _read(name, spec) if isinstance(spec, LocalTarget) or name == asked else Target(name, spec, asked=False)
        for name, spec in targets.items()
    ]


def made_releases(folder: Path) -> tuple[list[Release], list[str]]:
    """Releases made on this machine, the newest first, and a line for each that is not what its name says."""
    releases, problems = [], []
    for path in reversed(list_releases(folder)):
        try:
            releases.append(load_release(path))
        except InputError as error:
            problems.append(str(error))
    return releases, problems


def history(entries: list[Entry]) -> tuple[Step, ...]:
    """The changes that a journal tells of, the newest first."""
    changes: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.mark is not Mark.RETIRED:
            changes.setdefault(entry.change, []).append(entry)
    return tuple(_change(own) for own in reversed(changes.values()))


def _change(own: list[Entry]) -> Step:
    first, last = own[0], own[-1]
    failed = next((entry for entry in reversed(own) if entry.mark is Mark.FAILED), None)
    outcome = {Mark.CLOSED: "done", Mark.UNDONE: "undone"}.get(last.mark, f"going on: {last.step or 'opened'}")
    reason = f"{failed.step}: {failed.reason}" if failed and last.mark is not Mark.CLOSED else ""
    return Step(first.kind.value, first.release, first.time, outcome, reason)


def _read(name: str, spec: TargetSpec) -> Target:
    try:
        with open_site(name, spec) as site:
            entries = site.journal.entries()
            standing, shares = replay(entries), site.router.shares()
            owner = holder(site.first, site.lock)
            parts = tuple(
                Part(part, placed, shares.get(placed.release, 0.0), _release(site, placed.release))
                for part, placed in _parts(standing)
            )
            return Target(name, spec, True, standing, parts, history(entries), owner.words() if owner else "")
    except _FAILURES as error:
        return Target(name, spec, asked=True, problem=one_line(str(error)) or type(error).__name__)


def _release(site: Site, identifier: str) -> Release | None:
    try:
        return replicas.release_on(site, identifier)
    except _FAILURES:
        return None


def _parts(standing: Standing) -> list[tuple[str, Placed]]:
    coming = standing.change.new if standing.change else None
    parts = [("serving", standing.serving), ("warm", standing.previous), ("coming", coming)]
    found = [(name, placed) for name, placed in parts if placed is not None]
    return list({placed.release: (name, placed) for name, placed in reversed(found)}.values())[::-1]
