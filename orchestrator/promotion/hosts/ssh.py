"""A machine behind SSH as a host. It needs sshd with SFTP, coreutils, findutils and a POSIX shell.

Commands travel as one shell-quoted list of arguments, and the far side ends them when their time is over, so that a
lost connection leaves nothing running for longer. When the answer to a call is lost, what may be done twice is done
again, once, on a new connection; `run`, `append` and `create_exclusive` are not.
"""

from __future__ import annotations

import shlex
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

import paramiko

from orchestrator.promotion.host import LOOPBACK, Finished, HostError, HostFacts
from orchestrator.promotion.hosts import facts, sending
from orchestrator.promotion.hosts.connection import Connection
from orchestrator.promotion.hosts.local import SBIN
from orchestrator.promotion.hosts.login import Login
from orchestrator.promotion.hosts.tunnel import tunnel

_BOUNDED = f'PATH=$PATH:{SBIN}; timeout -s KILL "$@"; exit $?'
_APPEND = """\
LC_ALL=C
line=$(cat)
[ "${#line}" -eq "$3" ] || exit 9
size=$(stat -c %s "$1" 2>/dev/null || echo 0)
whole='bs=1M iflag=fullblock status=none'
printf '%s\\n' "$line" | dd of="$1" $whole oflag=append conv=notrunc,fsync && sync "$2" && exit
truncate -c -s "$size" "$1"
exit 1
"""
"""Adds the line of $3 bytes on stdin to file $1; where it is cut on its way or the disk is full, nothing of it."""
_KILLED = 137
_NOT_STARTED = (126, 127)
_FILE_S = 60.0
_MARGIN_S = 10.0


class SshHost:
    """The machine that `login` reaches, as the user who logs in. `name` is the target's word for it."""

    def __init__(self, name: str, login: Login) -> None:
        self.name = name
        self._connection = Connection(name, login)

    def close(self) -> None:
        self._connection.close()

    def run(self, argv: Sequence[str], *, timeout_s: float, input: bytes | None = None) -> Finished:  # noqa: A002
        command = shlex.join(["sh", "-c", _BOUNDED, "sh", f"{timeout_s:g}", *argv])
        with self._connection.session() as channel, self._connection.failing(f"{argv[0]} may or may not have ended"):
            channel.settimeout(timeout_s + _MARGIN_S)
            started = time.monotonic()
            finished = _finish(channel, command, input or b"")
        if finished.code == _KILLED and time.monotonic() - started >= timeout_s:
            raise HostError(f"{self.name}: {argv[0]} did not end within {timeout_s:g} s")
        if finished.code in _NOT_STARTED and finished.err.startswith("timeout:"):
            raise HostError(f"{self.name}: {argv[0]} cannot be started: {finished.err.strip().rpartition(': ')[2]}")
        return finished

    def read(self, path: PurePosixPath) -> bytes | None:
        return self._connection.twice(lambda: self._read(path))

    def _read(self, path: PurePosixPath) -> bytes | None:
        with self._connection.files(str(path)) as sftp:
            try:
                with sftp.open(str(path), "rb") as file:
                    data: bytes = file.read()
                    return data
            except FileNotFoundError:
                return None

    def write(self, path: PurePosixPath, data: bytes, *, mode: int = 0o644) -> None:
        self._connection.twice(lambda: self._write(path, data, mode))

    def _write(self, path: PurePosixPath, data: bytes, mode: int) -> None:
        with self._beside(path, data, mode) as temporary:
            self._must(["mv", "-fT", "--", temporary, str(path)])
        self._must(["sync", str(path.parent)])

    def append(self, path: PurePosixPath, line: str) -> None:
        data = line.encode()
        argv = ["sh", "-c", _APPEND, "sh", str(path), str(path.parent), str(len(data))]
        self._succeed(self.run(argv, timeout_s=_FILE_S, input=data), f"append to {path}")

    def make_folder(self, path: PurePosixPath) -> None:
        self._must(["mkdir", "-p", "--", str(path)])

    def remove(self, path: PurePosixPath) -> None:
        self._must(["rm", "-rf", "--", str(path)])

    def listing(self, path: PurePosixPath) -> list[str]:
        return self._connection.twice(lambda: self._listing(path))

    def _listing(self, path: PurePosixPath) -> list[str]:
        with self._connection.files(str(path)) as sftp:
            try:
                return sorted(sftp.listdir(str(path)))
            except FileNotFoundError:
                return []

    def create_exclusive(self, path: PurePosixPath, data: bytes) -> bool:
        with self._beside(path, data, 0o644) as temporary:
            made = self.run(["ln", "-T", "--", temporary, str(path)], timeout_s=_FILE_S)
            if made.code and path.name in self.listing(path.parent):
                return False
            self._succeed(made, f"create {path}")
        self._must(["sync", str(path.parent)])
        return True

    def upload(self, folder: Path, to: PurePosixPath, progress: Callable[[int, int], None]) -> None:
        self._connection.twice(lambda: sending.send(self, self._connection, folder, to, progress))

    @contextmanager
    def forward(self, port: int, address: str = LOOPBACK) -> Iterator[int]:
        """HostError at once where the host's sshd does not allow it."""
        probe = self._connection.reach(address, port)
        if probe is not None:
            probe.close()
        with tunnel(lambda: self._connection.reach(address, port)) as here:
            yield here

    def facts(self, root: PurePosixPath) -> HostFacts:
        return facts.ask(self, root)

    @contextmanager
    def _beside(self, path: PurePosixPath, data: bytes, mode: int) -> Iterator[str]:
        """A synced file with this content in the same folder, gone afterwards unless it was renamed."""
        temporary = str(path.with_name(f".{path.name}.{uuid.uuid4().hex}"))
        try:
            with self._connection.files(str(path)) as sftp, sftp.open(temporary, "wxb") as file:
                file.chmod(mode)
                file.write(data)
            self._must(["sync", temporary])
            yield temporary
        finally:
            with suppress(HostError):  # the first error is the one to tell
                self._must(["rm", "-f", "--", temporary])

    def _must(self, argv: Sequence[str]) -> None:
        """Run what may be run twice and has to succeed."""
        finished = self._connection.twice(lambda: self.run(argv, timeout_s=_FILE_S))
        self._succeed(finished, argv[0])

    def _succeed(self, finished: Finished, what: str) -> None:
        if finished.code:
            reason = finished.err.strip() or f"exit code {finished.code}"
            raise HostError(f"{self.name}: {what}: {reason}")


def _finish(channel: paramiko.Channel, command: str, data: bytes) -> Finished:
    """Run a command to its end. What it prints is read while its input is written, lest both sides wait."""
    with ThreadPoolExecutor(2) as readers:
        try:
            channel.exec_command(command)
            out = readers.submit(channel.makefile("rb").read)
            err = readers.submit(channel.makefile_stderr("rb").read)
            with suppress(OSError):  # it need not read its input
                channel.sendall(data)
                channel.shutdown_write()
            printed, complained = out.result(), err.result()
            code = channel.recv_exit_status()
        finally:
            channel.close()
    if code < 0:
        raise EOFError
    return Finished(code, printed.decode(errors="replace"), complained.decode(errors="replace"))
