"""The runs folder as pages read it: cards for lists, loaded runs for pages, the last few kept in memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from pathlib import Path

from dashboards.run import Run, load_run
from orchestrator.cards import Card, Shelf, is_running
from orchestrator.index import Index, IndexedStore, open_index, stamp_of
from orchestrator.store import RunStore

_KEPT = 8


@dataclass(frozen=True)
class Opened:
    """A run with its index."""

    run: Run
    index: Index


class Library:
    """Thread-safe: the server answers several requests at once."""

    def __init__(self, runs: Path) -> None:
        self.folder = runs
        self._shelf = Shelf(runs)
        self._lock = threading.Lock()
        self._opened: OrderedDict[tuple[str, str], Opened] = OrderedDict()

    def cards(self) -> list[Card]:
        """All runs, the newest first."""
        with self._lock:
            return self._shelf.cards()

    def card(self, name: str) -> Card:
        """InputError when there is no such run."""
        with self._lock:
            return self._shelf.card(name)

    def running(self, card: Card) -> bool:
        """Whether a sweep is measuring this run now."""
        return is_running(RunStore(self.folder / card.name))

    def open(self, name: str) -> Opened:
        """A whole run. InputError when there is no such run."""
        store = self._shelf.store(name)
        key = name, stamp_of(store)
        with self._lock:
            if key not in self._opened:
                self._opened[key] = _load(store)
                while len(self._opened) > _KEPT:
                    self._opened.popitem(last=False)
            self._opened.move_to_end(key)
            return self._opened[key]


def _load(store: RunStore) -> Opened:
    index = open_index(store)
    run = load_run(IndexedStore(store, index))
    return Opened(replace(run, problems=[*run.problems, *index.problems]), index)
