"""The cards of a folder of runs, each read again only when its run changed."""

from __future__ import annotations

import contextlib
import fcntl
from pathlib import Path

from orchestrator.cards import Card, read_card
from orchestrator.damage import DAMAGE
from orchestrator.errors import InputError
from orchestrator.records import Record
from orchestrator.store import RunStore, read_record, write_text

_FORMAT = 1
_FILES = ("sweep.yaml", "environment.json", "journal.jsonl", "decision.json")
_CARD = "card.json"


class Kept(Record):
    """A card and what its run looked like when it was read."""

    stamp: str
    card: Card


class Shelf:
    """The cards of a folder of runs. A card is kept in memory and, once decided, beside its run, and is read again
    only when one of the run's files changed."""

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self._kept: dict[str, Kept] = {}

    def names(self) -> list[str]:
        """Folders that hold a run. A link is not followed: it may lead out of the folder of runs."""
        with contextlib.suppress(OSError):
            folders = [path for path in self._runs.iterdir() if path.name[0] != "." and not path.is_symlink()]
            return sorted(path.name for path in folders if (path / "sweep.yaml").is_file())
        return []

    def store(self, name: str) -> RunStore:
        """The run called `name`. InputError unless it is one of `names`."""
        if name not in self.names():
            raise InputError(f"no run {name!r} in {self._runs}")
        return RunStore(self._runs / name)

    def card(self, name: str) -> Card:
        """A run's card. InputError when there is no such run."""
        return self._card(self.store(name))

    def cards(self) -> list[Card]:
        """All runs, the newest first."""
        found = [self._card(RunStore(self._runs / name)) for name in self.names()]
        return sorted(found, key=lambda card: card.started, reverse=True)

    def _card(self, store: RunStore) -> Card:
        name = store.folder.name
        stamp = stamp_of(store)
        kept = self._kept.get(name) or _stored(store)
        if kept is None or kept.stamp != stamp or kept.card.name != name:  # a folder may have been renamed
            kept = write_card(store)
        self._kept[name] = kept
        return kept.card


def write_card(store: RunStore) -> Kept:
    """Read a run's card and, once the run is decided, keep it beside the run. A folder that cannot be written costs the
    next reader some time and nothing else."""
    kept = Kept(stamp=stamp_of(store), card=read_card(store))
    if kept.card.verdict is not None:
        with contextlib.suppress(OSError):
            (store.folder / "index").mkdir(exist_ok=True)
            write_text(store.folder / "index" / _CARD, kept.model_dump_json())
    return kept


def stamp_of(store: RunStore) -> str:
    """Changes whenever the run's journal, decision or description does."""
    return f"{_FORMAT}/" + " ".join(_mark(store.folder / name) for name in _FILES)


def is_running(store: RunStore) -> bool:
    """Whether a sweep holds the run now. Looks only at an open run, and for microseconds: a sweep that starts just
    then would find the run taken."""
    lock, decision = store.folder / ".lock", store.folder / "decision.json"
    try:
        if decision.exists() and decision.stat().st_mtime_ns > lock.stat().st_mtime_ns:
            return False
        with lock.open("rb") as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _mark(path: Path) -> str:
    try:
        status = path.stat()
    except OSError:
        return "-"
    return f"{status.st_mtime_ns}:{status.st_size}"


def _stored(store: RunStore) -> Kept | None:
    with contextlib.suppress(*DAMAGE):
        return read_record(store.folder / "index" / _CARD, Kept)
    return None
