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

from .files import Command, Folder, State
from .log import Log
from .processes import MARK, end, known, members, resident_bytes

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 60.0
"""The pause before a start doubles from the one to the other, and is short again after a server that ran for longer."""
GRACE_S = 5.0
"""From SIGTERM to SIGKILL for what a server leaves behind. For the server itself, `stop` has a time of its own."""

_LOOK_S = 1.0
_INHERITED = ("HOME", "LANG", "PATH")
_PR_SET_CHILD_SUBREAPER = 36


class Signals:
    """SIGTERM asks to stop; SIGCHLD only wakes."""

    def __init__(self) -> None:
        self.stopping = False
        self._reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    def wait(self, seconds: float) -> None:
        """Until a signal comes or the time is over."""
        ready, _, _ = select.select([self._reader], [], [], seconds)
        if ready and signal.SIGTERM in os.read(self._reader, 4096):
            self.stopping = True


@dataclass
class Keeper:
    """`command` as `folder` states it. Whatever way its server ends, it is started again."""

    folder: Folder
    command: Command
    log: Log
    signals: Signals

    def run(self, started: Callable[[], None]) -> None:
        """Keep the server until SIGTERM comes; leave nothing of it. OSError: it cannot be started even once."""
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._end_members()
        state = State(known(os.getpid()), None, time.time())
        pause = FIRST_PAUSE_S
        child: int | None = self._spawn()
        while child is not None:
            state = replace(state, server=known(child), since=time.time())
            self._write(state)
            started()
            code = self._wait(child)
            self._end_members()
            if time.time() - state.since > LONGEST_PAUSE_S:
                pause = FIRST_PAUSE_S
            state = replace(state, server=None, since=time.time(), restarts=state.restarts + 1, exit_code=code)
            self._write(state)
            self.log.note(f"server ended with exit code {code}")
            child = self._spawn_after(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def _spawn(self) -> int:
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
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
            while not self.signals.stopping and (left := deadline - time.monotonic()) > 0:
                self.signals.wait(left)
            if self.signals.stopping:
                return None
            try:
                return self._spawn()
            except OSError as error:
                pause = LONGEST_PAUSE_S
                self.log.note(f"{error}; tried again in {pause:g} s")

    def _wait(self, child: int) -> int:
        """Until the server ends; its exit code, 128 + n for signal n. SIGTERM is passed on once."""
        told = False
        codes: dict[int, int] = {}
        while child not in codes:
            if self.signals.stopping and not told:
                told = True
                os.kill(child, signal.SIGTERM)
            self.signals.wait(_LOOK_S)
            codes.update(_reap())
            self.log.rotate()
            if child not in codes and self._too_large():
                os.kill(child, signal.SIGKILL)
        return codes[child]

    def _too_large(self) -> bool:
        limit = self.command.memory_bytes
        if not limit or (size := resident_bytes(self._members())) <= limit:
            return False
        self.log.note(f"server holds {size >> 20} MiB of memory, more than its {limit >> 20} MiB: killed")
        return True

    def _members(self) -> set[int]:
        return members(self.folder.path, self.folder.log)

    def _end_members(self) -> None:
        end(self._members, GRACE_S)
        for _ in _reap():
            pass

    def _write(self, state: State) -> None:
        try:
            self.folder.write(state)
        except OSError as error:
            self.log.note(f"state not written: {error}")


def _reap() -> Iterator[tuple[int, int]]:
    """Exit codes of the children that ended; orphans of the server come to us too."""
    with contextlib.suppress(ChildProcessError):
        while (waited := os.waitpid(-1, os.WNOHANG))[0]:
            code = os.waitstatus_to_exitcode(waited[1])
            yield waited[0], code if code >= 0 else 128 - code
