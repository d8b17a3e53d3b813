"""A unit's folder: what to run, what runs, who holds it."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .processes import Known


@dataclass(frozen=True)
class Command:
    """What to run: `unit.json`. `memory_bytes`: 0 for no limit."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    memory_bytes: int = 0


@dataclass(frozen=True)
class State:
    """What runs, since when: `state.json`. `server` is None between its end and the next start.

    `since`: seconds since the epoch at which the server or the pause began. `exit_code`: of the server before, 128 + n
    for signal n.
    """

    keeper: Known | None
    server: Known | None
    since: float
    restarts: int = 0
    exit_code: int | None = None


class Folder:
    """Paths and contents. ValueError, in one line, for what cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.log = self.path / "server.log"
        self._state = self.path / "state.json"

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
        temporary = self._state.with_name("state.json.new")
        temporary.write_text(json.dumps(asdict(state)), encoding="utf-8")
        temporary.replace(self._state)

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
