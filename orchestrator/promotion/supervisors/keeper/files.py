"""A unit's folder: what to run, what runs, who holds it."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .processes import Known


def unfinished(path: Path) -> Path:
    """Where a file is written before it takes its place, by this process alone: others may start at this moment."""
    return path.with_name(f"{path.name}.{os.getpid()}.new")


@dataclass(frozen=True)
class Command:
    """What to run: `unit.json`. `memory_bytes`: 0 for no limit. `drains`: it finishes what it answers on SIGQUIT, and
    what a dead one left may do so beside the next one; else it ends on SIGTERM, before the next one starts."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    memory_bytes: int = 0
    drains: bool = False

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    @property
    def stop_signal(self) -> signal.Signals:
        return signal.SIGQUIT if self.drains else signal.SIGTERM


@dataclass(frozen=True)
class State:
    """What runs, since when: `state.json`. `server` is None between its end and the next start.

    `since`: seconds since the epoch at which the server or the pause began. `exit_code`: of the server before, 128 + n
    for signal n. `command`: digest of what the server is.
    """

    keeper: Known | None
    server: Known | None
    since: float
    restarts: int = 0
    exit_code: int | None = None
    command: str = ""


class Folder:
    """Paths and contents. ValueError, in one line, for what cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.log = self.path / "server.log"
        self._state = self.path / "state.json"
        self._end = self.path / "until"

    def command(self) -> Command:
        path = self.path / "unit.json"
        try:
            return Command(**json.loads(path.read_bytes()))
        except OSError as error:
            raise ValueError(f"{path}: {error.strerror}") from error
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: not a unit: {error}") from error

    def state(self) -> State | None:
        """None when nothing was ever started here; also for a file cut short, which its writer never leaves."""
        try:
            fields = json.loads(self._state.read_bytes())
            return State(_known(fields.pop("keeper")), _known(fields.pop("server")), **fields)
        except FileNotFoundError:
            return None
        except (TypeError, ValueError, KeyError, AttributeError):
            return None

    def write(self, state: State) -> None:
        temporary = unfinished(self._state)
        temporary.write_text(json.dumps(asdict(state)), encoding="utf-8")
        temporary.replace(self._state)

    def end_at(self, moment: float | None) -> None:
        """Have the keeper end at a moment (seconds since the epoch); None for never."""
        if moment is None:
            self._end.unlink(missing_ok=True)
            return
        temporary = unfinished(self._end)
        temporary.write_text(f"{moment:.0f}", encoding="ascii")
        temporary.replace(self._end)

    @property
    def over(self) -> bool:
        """Whether that moment has come."""
        try:
            return time.time() >= float(self._end.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return False

    def hold(self) -> int | None:
        """Take the unit for as long as the descriptor stays open; None when a keeper has it."""
        descriptor = os.open(self.path / "keeper.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor


def _known(fields: dict[str, Any] | None) -> Known | None:
    return None if fields is None else Known(**fields)
