"""This machine as a host."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath

from orchestrator.promotion.host import LOOPBACK, Finished, HostError, HostFacts
from orchestrator.promotion.hosts import disk, facts, tree
from orchestrator.promotion.hosts.tunnel import tunnel

SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
"""Where nginx and its like are; not on everyone's PATH."""

_CONNECT_S = 10.0


class LocalHost:
    """Files and processes of this machine, as the user who calls."""

    name = "local"

    def run(self, argv: Sequence[str], *, timeout_s: float, input: bytes | None = None) -> Finished:  # noqa: A002
        with self._started(argv, input is not None) as process:
            try:
                out, err = process.communicate(input, timeout_s)
            except subprocess.TimeoutExpired as error:
                raise HostError(f"{self.name}: {argv[0]} did not end within {timeout_s:g} s") from error
            finally:
                if process.returncode is None:
                    os.killpg(process.pid, signal.SIGKILL)
        code = process.returncode
        return Finished(code if code >= 0 else 128 - code, out.decode(errors="replace"), err.decode(errors="replace"))

    def _started(self, argv: Sequence[str], fed: bool) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        environment = os.environ | {"PATH": f"{os.environ.get('PATH', os.defpath)}:{SBIN}"}
        try:
            return subprocess.Popen(
                argv,
                stdin=pipe if fed else subprocess.DEVNULL,
                stdout=pipe,
                stderr=pipe,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise HostError(f"{self.name}: {argv[0]} cannot be started: {error.strerror}") from error

    def read(self, path: PurePosixPath) -> bytes | None:
        with self._failing(path):
            try:
                return Path(path).read_bytes()
            except FileNotFoundError:
                return None

    def write(self, path: PurePosixPath, data: bytes, *, mode: int = 0o644) -> None:
        with self._failing(path):
            disk.replace(Path(path), data, mode)

    def append(self, path: PurePosixPath, line: str) -> None:
        with self._failing(path):
            disk.append(Path(path), f"{line}\n".encode())

    def make_folder(self, path: PurePosixPath) -> None:
        with self._failing(path):
            Path(path).mkdir(parents=True, exist_ok=True)

    def remove(self, path: PurePosixPath) -> None:
        here = Path(path)
        with self._failing(path), contextlib.suppress(FileNotFoundError):
            if here.is_dir() and not here.is_symlink():
                shutil.rmtree(here)
            else:
                here.unlink()

    def listing(self, path: PurePosixPath) -> list[str]:
        with self._failing(path):
            try:
                return sorted(entry.name for entry in Path(path).iterdir())
            except FileNotFoundError:
                return []

    def create_exclusive(self, path: PurePosixPath, data: bytes) -> bool:
        with self._failing(path):
            return disk.create(Path(path), data)

    def upload(self, folder: Path, to: PurePosixPath, progress: Callable[[int, int], None]) -> None:
        wanted = tree.files(folder)
        total = sum(file.size for file in wanted)
        here, part = Path(to), Path(tree.staging(to))
        with self._failing(to):
            if here.is_dir() and not tree.different(wanted, disk.digests(here)):
                progress(total, total)
                return
            disk.copy(wanted, part, lambda done: progress(done, total))
            if wrong := tree.different(wanted, disk.digests(part)):
                (part / wrong[0]).unlink(missing_ok=True)
                raise HostError(f"{self.name}: {part / wrong[0]} differs from what was sent; next time it is sent anew")
            self.remove(to)
            part.rename(here)
            disk.sync_folder(here.parent)

    def forward(self, port: int, address: str = LOOPBACK) -> AbstractContextManager[int]:
        if address == LOOPBACK:
            return contextlib.nullcontext(port)
        return tunnel(lambda: socket.create_connection((address, port), _CONNECT_S))

    def facts(self, root: PurePosixPath) -> HostFacts:
        return facts.ask(self, root)

    @contextlib.contextmanager
    def _failing(self, path: PurePosixPath) -> Iterator[None]:
        """An error of the disk as one line that names the file."""
        try:
            yield
        except OSError as error:
            raise HostError(f"{self.name}: {error.filename or path}: {error.strerror or error}") from error
