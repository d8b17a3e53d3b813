"""`python3 -IS keeper.pyz start|boot|reload|expire|stop|status FOLDER`: what a supervisor asks for on a unit's host."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from . import boot
from .files import Folder
from .keeping import Keeper, Signals
from .log import Log
from .processes import Known, end, members

_USAGE = "usage: keeper.pyz start|boot|reload|status FOLDER | expire|stop FOLDER SECONDS"
_POLL_S = 0.05
_STARTED = b"started"


def main() -> int:
    """Exit code 0 when done, 1 with one line on stderr when not."""
    try:
        _act(sys.argv[1:])
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _act(arguments: list[str]) -> None:
    match arguments:
        case ["start", path]:
            folder = Folder(Path(path))
            folder.end_at(None)
            start(folder)
            boot.enable(folder)
        case ["boot", path]:
            folder = Folder(Path(path))
            boot.restore(folder)
            start(folder)
        case ["reload", path]:
            reload(Folder(Path(path)))
        case ["expire", path, seconds]:
            folder = Folder(Path(path))
            boot.disable(folder)
            expire(folder, float(seconds))
        case ["stop", path, seconds]:
            folder = Folder(Path(path))
            boot.disable(folder)
            stop(folder, float(seconds))
        case ["status", path]:
            status(Folder(Path(path)))
        case _:
            raise ValueError(_USAGE)


def start(folder: Folder) -> None:
    """Start a keeper that outlives us and wait until its server runs. Does nothing when one keeps this unit.

    ValueError: the server could not be started, and why.
    """
    folder.command()
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(reader)
        _live(folder, _Answer(writer))
    os.close(writer)
    with os.fdopen(reader, "rb") as answers:
        answer = answers.read()
    if answer != _STARTED:
        raise ValueError(answer.decode(errors="replace") or f"{folder.path}: the keeper ended at its start")


@dataclass
class _Answer:
    """The keeper's side of the pipe that `start` waits at. It is closed by the first answer."""

    descriptor: int
    given: bool = False

    def give(self, answer: bytes) -> None:
        if not self.given:
            self.given = True
            with contextlib.suppress(BrokenPipeError):  # `start` was killed
                os.write(self.descriptor, answer)
            os.close(self.descriptor)


def _live(folder: Folder, answer: _Answer) -> None:
    """The keeper's whole life, in a session of its own. Never returns."""
    try:
        os.setsid()
        os.umask(0o077)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(nowhere, descriptor)
        if folder.hold() is not None:
            _keep(folder, answer)
        answer.give(_STARTED)
    except Exception as error:
        answer.give(str(error).encode())
    finally:
        os._exit(0)


def _keep(folder: Folder, answer: _Answer) -> None:
    log = Log(folder.log)
    try:
        Keeper(folder, folder.command(), log, Signals()).run(lambda: answer.give(_STARTED))
    except Exception as error:
        log.note(f"the keeper ends: {error}")
        raise


def reload(folder: Folder) -> None:
    """Send the server SIGHUP. ValueError where none runs."""
    state = folder.state()
    if state is None or state.server is None or not state.server.send(signal.SIGHUP):
        raise ValueError(f"{folder.path}: its server does not run")


def expire(folder: Folder, after_s: float) -> None:
    """Have the unit end by itself; a server whose keeper was killed gets another one for that."""
    folder.end_at(time.time() + after_s)
    state = folder.state()
    if state is not None and _alive(state.server):
        start(folder)


def stop(folder: Folder, timeout_s: float) -> None:
    """Ask the keeper to end its server, and kill what is left after the time; works without a keeper, too."""
    state = folder.state()
    deadline = time.monotonic() + timeout_s
    keeper = None if state is None else state.keeper
    if keeper is not None and keeper.send(signal.SIGTERM):
        while keeper.alive() and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        keeper.send(signal.SIGKILL)  # before the rest: it gives leftovers a grace that is not ours to give
    end(lambda: members(folder.path, folder.log), max(0.0, deadline - time.monotonic()))


def status(folder: Folder) -> None:
    """Print the state as JSON with `kept`, `running` and `lost_by_reboot`; `{}` when nothing was ever started here."""
    state = folder.state()
    if state is None:
        sys.stdout.write("{}\n")
        return
    lives = {"kept": _alive(state.keeper), "running": _alive(state.server), "lost_by_reboot": boot.lost(folder)}
    sys.stdout.write(json.dumps(asdict(state) | lives) + "\n")


def _alive(process: Known | None) -> bool:
    return process is not None and process.alive()
