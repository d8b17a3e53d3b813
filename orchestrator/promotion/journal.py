"""What happened on a target: journal.jsonl on its first host, and the standing that follows from it.

A change (a promotion or a rollback) is a state machine. Every arrow is journalled before it is begun and again when it
is done, so whoever comes next, after whatever death, knows where it stopped:

      standing ──open──► OPEN ──preflight─upload─start─ready─smoke─canary…─► ──full──► TURNED ──drain──► standing'
          ▲                │                                                              (new release serves)
          └────undone──────┘  any failure before `full` is done

OPEN: the old release serves, at most a canary's share goes to the new one. Going on repeats the first step not done;
undoing sends everything to the old release and removes the new one. TURNED: the new release serves, and only the
draining of the old one is left. `standing` is what is served, and the release before it with the time it is kept warm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import PurePosixPath

from pydantic import ValidationError

from orchestrator.errors import InputError
from orchestrator.promotion.host import Host
from orchestrator.records import Record
from orchestrator.store import is_json
from orchestrator.times import now

FULL = "full"


class Kind(StrEnum):
    PROMOTE = "promote"
    ROLLBACK = "rollback"


class Mark(StrEnum):
    """What an entry says of its change or of one of its steps."""

    OPEN = "open"
    BEGUN = "begun"
    DONE = "done"
    FAILED = "failed"
    UNDONE = "undone"
    CLOSED = "closed"
    RETIRED = "retired"


class Replica(Record):
    """Where one replica of a release runs. `gpus`: their UUIDs; none on a CPU."""

    host: str
    port: int
    gpus: tuple[str, ...] = ()


class Entry(Record):
    """One line of the journal. `release` is the one that the change brings; `step` is empty for the change itself.

    `replicas` come with OPEN, `warm_until` (seconds since 1970) with CLOSED.
    """

    time: str
    change: str
    kind: Kind
    release: str
    mark: Mark
    step: str = ""
    reason: str = ""
    owner: str = ""
    replicas: tuple[Replica, ...] = ()
    warm_until: float = 0.0


@dataclass(frozen=True)
class Placed:
    """A release and its replicas on the target."""

    release: str
    replicas: tuple[Replica, ...]


@dataclass(frozen=True)
class Change:
    """A change that was opened and neither closed nor undone."""

    name: str
    kind: Kind
    new: Placed
    done: frozenset[str] = frozenset()
    failed: str = ""

    @property
    def turned(self) -> bool:
        """Whether all traffic goes to the new release."""
        return FULL in self.done


@dataclass(frozen=True)
class Standing:
    """What a target serves, by its journal."""

    serving: Placed | None = None
    previous: Placed | None = None
    warm_until: float = 0.0
    change: Change | None = None
    known: dict[str, Placed] = field(default_factory=dict)

    def ports(self, host: str) -> set[int]:
        """Ports of the host that replicas have."""
        placed = [*self.known.values(), *([self.change.new] if self.change else [])]
        return {replica.port for one in placed for replica in one.replicas if replica.host == host}


def replay(entries: Sequence[Entry]) -> Standing:
    """The standing after all entries."""
    standing = Standing()
    for entry in entries:
        standing = _after(standing, entry)
    return standing


def _after(standing: Standing, entry: Entry) -> Standing:
    change = standing.change
    if entry.mark is Mark.OPEN:
        placed = Placed(entry.release, entry.replicas)
        return replace(standing, change=Change(entry.change, entry.kind, placed))
    if entry.mark is Mark.RETIRED:
        known = {name: placed for name, placed in standing.known.items() if name != entry.release}
        previous = standing.previous if standing.previous and standing.previous.release != entry.release else None
        return replace(standing, previous=previous, known=known)
    if change is None or entry.change != change.name:
        return standing
    if entry.mark is Mark.DONE:
        return replace(standing, change=replace(change, done=change.done | {entry.step}))
    if entry.mark is Mark.FAILED:
        return replace(standing, change=replace(change, failed=f"{entry.step}: {entry.reason}"))
    if entry.mark is Mark.UNDONE:
        return replace(standing, change=None)
    if entry.mark is Mark.CLOSED:
        return _closed(standing, change, entry)
    return standing


def _closed(standing: Standing, change: Change, entry: Entry) -> Standing:
    """What was served before stays as `previous` after a promotion; after a rollback there is nothing to go back to."""
    before, known = standing.serving, standing.known | {change.new.release: change.new}
    if change.kind is Kind.ROLLBACK:
        return Standing(serving=change.new, known=known)
    return Standing(change.new, before, entry.warm_until, None, known)


class Journal:
    """The journal on a target's first host."""

    def __init__(self, host: Host, path: PurePosixPath) -> None:
        self._host = host
        self._path = path

    def standing(self) -> Standing:
        return replay(self.entries())

    def entries(self) -> list[Entry]:
        """All entries. A line that a death cut off never took effect. InputError for a whole line that says other."""
        data = self._host.read(self._path) or b""
        lines = enumerate(data.decode(errors="replace").splitlines(), 1)
        return [self._entry(number, line) for number, line in lines if is_json(line)]

    def _entry(self, number: int, line: str) -> Entry:
        try:
            return Entry.model_validate_json(line)
        except ValidationError as error:
            where = f"{self._host.name}:{self._path}:{number}"
            raise InputError(f"{where}: the journal is damaged: {error.errors()[0]['msg']}") from error

    def add(self, entry: Entry) -> None:
        """Append an entry. A half line that a death left is closed first, or it would swallow this one."""
        if not (self._host.read(self._path) or b"\n").endswith(b"\n"):
            self._host.append(self._path, "")
        self._host.append(self._path, entry.model_dump_json(exclude_defaults=True))


def entry(change: Change, mark: Mark, step: str = "", *, reason: str = "", owner: str = "", **more: object) -> Entry:
    """An entry of a change, now."""
    values = {"time": now(), "change": change.name, "kind": change.kind, "release": change.new.release}
    return Entry.model_validate(values | {"mark": mark, "step": step, "reason": reason, "owner": owner} | more)
