"""What a change shows while it goes on: one line a step, and what a long one is doing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.status import Status
from rich.text import Text


@dataclass
class Progress:
    """Counts steps. `say` is a line that stays, `doing` what a terminal shows meanwhile; `taken` is for scripts."""

    console: Console
    total: int = 0
    taken: list[dict[str, object]] = field(default_factory=list)
    _at: int = 0
    _title: str = ""
    _status: Status | None = field(default=None, repr=False)

    def say(self, text: str) -> None:
        self.console.print(Text(text), soft_wrap=True)

    def doing(self, text: str) -> None:
        if self._status is not None:
            self._status.update(Text(f"{self._title}: {text}"))

    def skipped(self, title: str) -> None:
        self._at += 1
        self.taken.append({"step": title, "seen": "done before", "seconds": 0.0, "done": True})
        self.say(f"{self._head()} {title:<14} done before")

    @contextmanager
    def step(self, title: str) -> Iterator[list[str]]:
        """One step; what it saw is put into the list."""
        self._at += 1
        self._title, seen = title, list[str]()
        began, done = time.monotonic(), False
        try:
            with self.console.status(Text(title)) as self._status:
                yield seen
            done = True
        finally:
            self._status = None
            took = time.monotonic() - began
            self.taken.append({"step": title, "seen": "; ".join(seen), "seconds": round(took, 3), "done": done})
        self.say(f"{self._head()} {title:<14} {'; '.join(seen)}  ({took:.1f} s)")

    @contextmanager
    def aside(self, title: str) -> Iterator[list[str]]:
        """Work that is no step of the plan."""
        seen = list[str]()
        began = time.monotonic()
        with self.console.status(Text(title)):
            yield seen
        took = time.monotonic() - began
        self.taken.append({"step": title, "seen": "; ".join(seen), "seconds": round(took, 3), "done": True})
        self.say(f"{title}: {'; '.join(seen)}")

    def _head(self) -> str:
        width = len(str(self.total))
        return f"[{self._at:{width}}/{self.total}]"
