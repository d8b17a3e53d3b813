"""The runs folder as pages read it: cards for lists, loaded runs for pages, the last few kept in memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path

from dashboards.run import Run, load_run
from orchestrator.cards import Card
from orchestrator.index import stamp_of
from orchestrator.shelf import Shelf, is_running
from orchestrator.store import RunStore

_KEPT = 8


class Library:
    """Thread-safe: the server answers several requests at once."""

    def __init__(self, runs: Path) -> None:
        self.folder = runs
        self._shelf = Shelf(runs)
        self._lock = threading.Lock()
        self._opened: OrderedDict[tuple[str, str], Run] = OrderedDict()

    def cards(self) -> list[Card]:
        """All runs, the newest first."""
        with self._lock:
            return self._shelf.cards()

    def running(self, name: str) -> bool:
        """Whether a sweep is measuring this run now; `name` is one of a card."""
        return is_running(RunStore(self.folder / name))

    def open(self, name: str) -> Run:
        """A whole run. InputError when there is no such run."""
        store = self._shelf.store(name)
        key = name, stamp_of(store)
        with self._lock:
            if key not in self._opened:
                self._opened[key] = load_run(store)
                while len(self._opened) > _KEPT:
                    self._opened.popitem(last=False)
            self._opened.move_to_end(key)
            return self._opened[key]
