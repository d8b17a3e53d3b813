"""Processes of this machine, read from /proc: one that cannot be mistaken, all that belong to a unit, ending them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

MARK = "ORCHESTRATE_UNIT"
"""Variable that a server and what it starts inherit: the folder of their unit."""

_PROC = Path("/proc")
_POLL_S = 0.02
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Known:
    """A process told apart from a later one of the same number. `started`: clock ticks from boot to its start."""

    pid: int
    started: int
    boot: str

    def alive(self) -> bool:
        return self == known(self.pid)

    def send(self, number: signal.Signals) -> bool:
        """Signal it; False when it is gone. The descriptor keeps its number from being used again meanwhile."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except OSError:
            return False
        try:
            if not self.alive():
                return False
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(descriptor)
        return True


def known(pid: int) -> Known | None:
    """The process with this number; None when there is none or it is a zombie."""
    fields = _stat(pid)
    return None if fields is None or fields[0] == "Z" else Known(pid, int(fields[19]), boot_id())


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def members(folder: Path, log: Path) -> set[int]:
    """Process ids of a unit: what carries its mark or prints into its log, and everything below; no zombies.

    Both signs are needed: a program that sets its title (vLLM's do) overwrites its environment in /proc, and one may
    print elsewhere. We and our ancestors never belong to it.
    """
    parents = {pid: int(fields[1]) for pid in _pids() if (fields := _stat(pid)) is not None and fields[0] != "Z"}
    mark, file = f"{MARK}={folder}".encode(), _file(log)
    found = {pid for pid in parents if _carries(pid, mark, file)}
    todo = list(found)
    while todo:
        parent = todo.pop()
        below = {pid for pid, above in parents.items() if above == parent} - found
        found |= below
        todo += below
    return found - _line(os.getpid(), parents)


def end(find: Callable[[], set[int]], grace_s: float) -> None:
    """SIGTERM for all that is found, SIGKILL after the grace, until nothing is found."""
    deadline = time.monotonic() + grace_s
    told: set[int] = set()
    while found := find():
        late = time.monotonic() >= deadline
        for pid in found if late else found - told:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
        told |= found
        time.sleep(_POLL_S)


def resident_bytes(pids: set[int]) -> int:
    """Memory that these processes hold and share with no file."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            pages = (_PROC / str(pid) / "statm").read_text(encoding="ascii").split()
            total += (int(pages[1]) - int(pages[2])) * _PAGE
    return total


def _pids() -> list[int]:
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal()]


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the name, which may itself hold spaces and parentheses."""
    try:
        return (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].decode("ascii").split()
    except OSError:
        return None


def _file(path: Path | str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - of what a descriptor in /proc leads to, too
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _carries(pid: int, mark: bytes, log: tuple[int, int] | None) -> bool:
    with contextlib.suppress(OSError):
        if mark in (_PROC / str(pid) / "environ").read_bytes().split(b"\0"):
            return True
    return log is not None and log in (_file(f"/proc/{pid}/fd/1"), _file(f"/proc/{pid}/fd/2"))


def _line(pid: int, parents: dict[int, int]) -> set[int]:
    """A process and its ancestors."""
    line = set()
    while pid and pid not in line:
        line.add(pid)
        pid = parents.get(pid, 0)
    return line
