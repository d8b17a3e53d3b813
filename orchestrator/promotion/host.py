"""What promotion needs of a machine and of what keeps processes alive there: two small contracts.

Steps are written against these, so that this machine and one behind SSH, a bare process and a systemd unit are
the same to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

LOOPBACK = "127.0.0.1"


class HostError(Exception):
    """The host cannot be reached, is another than the known one, or does not do as told. The message is one line."""


@dataclass(frozen=True)
class Finished:
    """A command that ended, whatever its exit code (128 + n for signal n)."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Gpu:
    """One GPU of a host. `name` and `uuid` are NVML's; `driver` is the kernel driver's version."""

    name: str
    uuid: str
    memory_bytes: int
    driver: str


@dataclass(frozen=True)
class HostFacts:
    """What a host is now. `tools`: which of nginx, docker, systemctl, rsync, python3 and crontab it has on its PATH or
    in sbin."""

    disk_free_bytes: int
    memory_bytes: int
    gpus: tuple[Gpu, ...]
    kernel: str
    boot_id: str
    tools: frozenset[str]


class Host(Protocol):
    """A machine. Every method raises HostError when it cannot be carried out; paths are absolute."""

    name: str

    def run(self, argv: Sequence[str], *, timeout_s: float, input: bytes | None = None) -> Finished:  # noqa: A002
        """Run a command without a shell and wait for it. A command that cannot be started or takes longer than
        `timeout_s` (it is killed then) is a HostError; one that fails is a Finished."""

    def read(self, path: PurePosixPath) -> bytes | None:
        """A file's content; None where there is none."""

    def write(self, path: PurePosixPath, data: bytes, *, mode: int = 0o644) -> None:
        """Replace a file as a whole, on the disk before this returns: a reader sees the old content or the new."""

    def append(self, path: PurePosixPath, line: str) -> None:
        """Add one line (given without its newline), on the disk before this returns. Makes the file where absent."""

    def make_folder(self, path: PurePosixPath) -> None:
        """Make a folder and its parents; nothing to do where it exists."""

    def remove(self, path: PurePosixPath) -> None:
        """Remove a file, or a folder with all that is in it; nothing to do where it is absent."""

    def listing(self, path: PurePosixPath) -> list[str]:
        """Names in a folder, sorted; empty where it is absent."""

    def create_exclusive(self, path: PurePosixPath, data: bytes) -> bool:
        """Make a file that did not exist. False, and nothing done, where it does: two callers never both get True."""

    def upload(self, folder: Path, to: PurePosixPath, progress: Callable[[int, int], None]) -> None:
        """Have `to` hold exactly the files of the local folder; goes on where an interrupted upload stopped.

        `progress` hears bytes done and bytes in all. Digests are compared at the end: HostError names a file that
        differs, and `to` exists only once everything in it is right.
        """

    def forward(self, port: int, address: str = LOOPBACK) -> AbstractContextManager[int]:
        """A port of this machine's loopback interface that reaches `address`:`port` as the host sees it."""

    def facts(self, root: PurePosixPath) -> HostFacts:
        """What the host is; disk space is that of the file system which holds `root` (it need not exist yet)."""


@dataclass(frozen=True)
class Unit:
    """One replica: a server process that its supervisor starts again when it ends.

    `folder` is the unit's own, writable (pid, log, unit file); `release` and `models` are read-only to it. `env` is all
    it gets beyond PATH, HOME and LANG. `gpus` are the UUIDs of the only GPUs it may see; none for a CPU. `image` is the
    container image (name@digest) that a compose supervisor runs `argv` in; None for the interpreter in `argv`.
    `router` marks the target's nginx: it writes into `cwd`, and is asked to finish what it answers (SIGQUIT).
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: PurePosixPath
    folder: PurePosixPath
    release: PurePosixPath
    models: tuple[PurePosixPath, ...]
    port: int
    gpus: tuple[str, ...] = ()
    image: str | None = None
    memory_bytes: int | None = None
    router: bool = False


class Supervisor(Protocol):
    """Keeps units running: over the orchestrator's death, and over a reboot where it can. Every call is idempotent.

    All methods raise HostError with one line; `start` on a running unit and `stop` on a stopped one do nothing.
    """

    kind: str

    def install(self, host: Host, unit: Unit) -> None:
        """Write what the unit needs on the host; the same unit twice changes nothing."""

    def start(self, host: Host, unit: Unit) -> None:
        """Start it, for good: an end that `expire` set is forgotten. Whether its server takes requests is the caller's
        to find out."""

    def stop(self, host: Host, unit: Unit, timeout_s: float) -> None:
        """End it and all it started, with force after `timeout_s`; it stays down until `start`."""

    def expire(self, host: Host, unit: Unit, after_s: float) -> None:
        """Have it stop by itself after so many seconds, whoever lives then; a reboot meanwhile does not start it."""

    def remove(self, host: Host, unit: Unit) -> None:
        """Stop it and remove what `install` wrote."""

    def alive(self, host: Host, unit: Unit) -> bool:
        """Whether its process (or container) runs."""

    def log(self, host: Host, unit: Unit, lines: int) -> str:
        """The last lines it printed; empty where there are none."""

    def lost_by_reboot(self, host: Host, unit: Unit) -> str:
        """Why a reboot of the host would not bring it back; empty where it does."""

    def read(self, host: Host, unit: Unit, path: PurePosixPath) -> bytes | None:
        """A file as its running server sees it; None where there is none."""


class RouterSupervisor(Supervisor, Protocol):
    """One that can keep a program of the host itself, such as nginx."""

    def reload(self, host: Host, unit: Unit) -> None:
        """Have it read its configuration again (SIGHUP). HostError where it does not run."""
