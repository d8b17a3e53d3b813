"""Runs a program that must not outlive its owner: `python -m orchestrator.leash [--grace SECONDS] -- COMMAND...`.

The owner holds the write end of a pipe on our stdin. Two processes stand between the owner and the program, each with
the other's fate in hand:

    owner --pipe--> outer leash --pipe--> inner leash --pdeathsig--> program and whatever it starts

An end of file on a pipe means that its writer is gone, however it went; so SIGKILL for any one of the four ends
everything below it. Both leashes are subreapers (prctl(2)): a grandchild that detaches itself comes to them, and is
ended too. Only the standard library is imported, so that a leash starts in tens of milliseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

GRACE_S = 3.0
"""From SIGTERM to SIGKILL."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.02


def main(arguments: list[str]) -> int:
    """Run the command until it ends or the owner does. Returns its exit code, 128 + n when signal n ended it."""
    options, separator, command = _split(arguments)
    if not separator or not command or (options and (len(options) != 2 or options[0] != "--grace")):
        sys.stderr.write("usage: python -m orchestrator.leash [--grace SECONDS] -- COMMAND...\n")
        return 2
    grace = float(options[1]) if options else GRACE_S
    owner = os.getppid()
    # A second line, for a pipe that some fork of the owner keeps open. It also comes when only the thread that started
    # us ends, hence a signal of its own that asks to look.
    _prctl(_PR_SET_PDEATHSIG, signal.SIGUSR1)
    return _hold(sys.stdin.fileno(), owner, lambda: _start_inner(command, grace), grace + 1)


def _split(arguments: list[str]) -> tuple[list[str], bool, list[str]]:
    if "--" not in arguments:
        return arguments, False, []
    at = arguments.index("--")
    return arguments[:at], True, arguments[at + 1 :]


def _start_inner(command: list[str], grace: float) -> int:
    """Fork the inner leash. The write end of its pipe stays open here and nowhere else."""
    reader, writer = os.pipe()
    outer = os.getpid()
    pid = os.fork()
    if pid:
        os.close(reader)
        return pid
    os.close(writer)
    os.dup2(reader, sys.stdin.fileno(), inheritable=False)
    os.setsid()
    os._exit(_hold(reader, outer, lambda: _start_program(command), grace))


def _start_program(command: list[str]) -> int:
    leash = os.getpid()
    reader, _ = os.pipe()  # its writer stays open here and nowhere else: the program's stdin ends when we do
    pid = os.fork()
    if pid:
        os.close(reader)
        return pid
    os.setsid()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != leash:
        os._exit(1)  # the leash died before the program was tied to it
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    os.dup2(reader, 0)
    try:
        os.execvp(command[0], command)  # noqa: S606
    except OSError as error:
        os.write(2, f"{command[0]}: cannot be started: {error.strerror}\n".encode())
    os._exit(127)


def _hold(pipe: int, owner: int, start: Callable[[], int], grace: float) -> int:
    """Start a child and wait until it ends, the pipe or the owner does, or SIGTERM comes; then leave nothing below."""
    wake = _wake_on_signals()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    child = start()
    codes: dict[int, int] = {}
    while child not in codes and not _released(pipe, wake, owner):
        codes.update(_reap())
    codes.update(_end_descendants(grace))
    return codes.get(child, 1)


def _wake_on_signals() -> int:
    """A descriptor from which the numbers of the signals that came can be read."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the owner's to answer
    return reader


def _released(pipe: int, wake: int, owner: int) -> bool:
    """Wait for something to happen; whether it was the end of the leash."""
    ready, _, _ = select.select([pipe, wake], [], [])
    if wake in ready and signal.SIGTERM in os.read(wake, 256):
        return True
    return os.getppid() != owner or (pipe in ready and not os.read(pipe, 4096))


def _reap() -> Iterator[tuple[int, int]]:
    """Exit codes of the children that ended, by process id."""
    with contextlib.suppress(ChildProcessError):
        while (waited := os.waitpid(-1, os.WNOHANG))[0]:
            code = os.waitstatus_to_exitcode(waited[1])
            yield waited[0], code if code >= 0 else 128 - code


def _end_descendants(grace: float) -> dict[int, int]:
    """SIGTERM for everything below us, SIGKILL after the grace, until nothing is left. Returns exit codes."""
    codes = dict(_reap())
    deadline = time.monotonic() + grace
    told: set[int] = set()
    while below := descendants(os.getpid()):
        late = time.monotonic() > deadline
        for pid in below if late else below - told:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
        told |= below
        time.sleep(_POLL_S)
        codes.update(_reap())
    return codes


def children() -> dict[int, list[int]]:
    """Who is whose child, of all processes, read from /proc once; zombies included."""
    found: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                # The name in parentheses may itself hold spaces and parentheses.
                parent = int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1])
                found.setdefault(parent, []).append(int(entry.name))
    return found


def descendants(root: int, families: Mapping[int, Sequence[int]] | None = None) -> set[int]:
    """Process ids of everything below `root`, in `families` if `children` was read already."""
    families = children() if families is None else families
    found: set[int] = set()
    todo = [root]
    while todo:
        below = families.get(todo.pop(), [])
        found.update(below)
        todo.extend(below)
    return found


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
