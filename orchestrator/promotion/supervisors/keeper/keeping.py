"""The loop of a keeper: start the server, wait, start it again when it failed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from .boot import INHERITED
from .files import Command, Folder, State
from .log import Log
from .processes import MARK, Known, end, known, members, resident_bytes

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 60.0
"""The pause before a start doubles from the one to the other, and is short again after a server that ran for longer."""
GRACE_S = 5.0
"""From SIGTERM to SIGKILL for what a server leaves behind. For the server itself, `stop` has a time of its own."""

_LOOK_S = 1.0
_PR_SET_CHILD_SUBREAPER = 36


class Signals:
    """SIGTERM asks to stop; SIGCHLD only wakes, and what a terminal sends is caught: ignored, it would be for the
    server, too."""

    def __init__(self) -> None:
        self.stopping = False
        self._reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)

    def wait(self, seconds: float) -> None:
        """Until a signal comes or the time is over."""
        ready, _, _ = select.select([self._reader], [], [], seconds)
        if ready and signal.SIGTERM in os.read(self._reader, 4096):
            self.stopping = True


@dataclass
class Keeper:
    """`command` as `folder` states it. Whatever way its server ends, it is started again, until it is to stop."""

    folder: Folder
    command: Command
    log: Log
    signals: Signals
    _adopted: Known | None = None

    def run(self, started: Callable[[], None]) -> None:
        """Keep the server until SIGTERM or the folder's end comes; leave nothing of it. OSError: it cannot be started
        even once."""
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        state = State(known(os.getpid()), None, time.time(), command=self.command.digest)
        pause = FIRST_PAUSE_S
        self._adopted = self._left_running()
        child: int | None = self._adopted.pid if self._adopted else self._spawn()
        while child is not None:
            state = replace(state, server=known(child), since=time.time())
            self._write(state)
            started()
            code = self._wait(child)
            if not self.command.drains:
                self._end_left()
            if time.time() - state.since > LONGEST_PAUSE_S:
                pause = FIRST_PAUSE_S
            state = replace(state, server=None, since=time.time(), restarts=state.restarts + 1, exit_code=code)
            self._write(state)
            self.log.note(f"server ended with exit code {'unknown' if code is None else code}")
            child = self._spawn_after(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def _left_running(self) -> Known | None:
        """The server of a keeper that was killed, where it is what we would start: it may be answering."""
        state = self.folder.state()
        if state is None or state.server is None or state.command != self.command.digest:
            return None
        return state.server if state.server.alive() else None

    def _spawn(self) -> int:
        self._end_left()  # of a router only now: until then it answers
        environment = {name: os.environ[name] for name in INHERITED if name in os.environ}
        process = subprocess.Popen(
            self.command.argv,
            env=environment | self.command.env | {MARK: str(self.folder.path)},
            cwd=self.command.cwd,
            stdin=subprocess.DEVNULL,
            stdout=self.log.descriptor,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        process.returncode = 0  # we reap: Popen would wait for it when it is collected
        return process.pid

    def _spawn_after(self, pause: float) -> int | None:
        """The next server's process id, however often it takes to start one; None once we are to stop."""
        while True:
            deadline = time.monotonic() + pause
            while not self._stopping() and (left := deadline - time.monotonic()) > 0:
                self.signals.wait(min(left, _LOOK_S))
            if self._stopping():
                return None
            try:
                return self._spawn()
            except OSError as error:
                pause = LONGEST_PAUSE_S
                self.log.note(f"{error}; tried again in {pause:g} s")

    def _wait(self, child: int) -> int | None:
        """Until the server ends; its exit code, 128 + n for signal n, None for an adopted one's, which is not told to
        us. It is told once that it is to stop."""
        told = False
        codes: dict[int, int | None] = {}
        while child not in codes:
            if not told and self._stopping():
                told = True
                _send(child, self.command.stop_signal)
            self.signals.wait(_LOOK_S)
            codes.update(_reap())
            if self._adopted and not self._adopted.alive():
                self._adopted = codes[child] = None
            self.log.rotate()
            if child not in codes and self._too_large():
                _send(child, signal.SIGKILL)
        return codes[child]

    def _too_large(self) -> bool:
        limit = self.command.memory_bytes
        if not limit or (size := resident_bytes(self._members())) <= limit:
            return False
        self.log.note(f"server holds {size >> 20} MiB of memory, more than its {limit >> 20} MiB: killed")
        return True

    def _members(self) -> set[int]:
        return members(self.folder.path, self.folder.log)

    def _stopping(self) -> bool:
        return self.signals.stopping or self.folder.over

    def _end_left(self) -> None:
        """End what a server left, or have it finish its answers beside the next one where it drains."""
        if self.command.drains:
            for pid in self._members():
                _send(pid, self.command.stop_signal)
        else:
            end(self._members, GRACE_S)
        for _ in _reap():
            pass

    def _write(self, state: State) -> None:
        try:
            self.folder.write(state)
        except OSError as error:
            self.log.note(f"state not written: {error}")


def _send(pid: int, number: signal.Signals) -> None:
    """Nothing to do for one that is gone: no child of ours is before it was reaped, but others' are."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _reap() -> Iterator[tuple[int, int]]:
    """Exit codes of the children that ended; orphans of the server come to us too."""
    with contextlib.suppress(ChildProcessError):
        while (waited := os.waitpid(-1, os.WNOHANG))[0]:
            code = os.waitstatus_to_exitcode(waited[1])
            yield waited[0], code if code >= 0 else 128 - code
