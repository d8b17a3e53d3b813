"""A host that keeps files in memory and answers commands as a test scripts them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath

from orchestrator.promotion.host import Finished, HostFacts

Answer = Callable[[Sequence[str]], Finished | None]
"""What a command prints; None for nothing, and success."""


class RecordingHost:
    name = "gpu1"

    def __init__(self, answer: Answer) -> None:
        self.files: dict[PurePosixPath, bytes] = {}
        self.modes: dict[PurePosixPath, int] = {}
        self.commands: list[str] = []
        self._answer = answer

    def run(self, argv: Sequence[str], *, timeout_s: float, input: bytes | None = None) -> Finished:  # noqa: A002
        assert timeout_s > 0
        self.commands.append(" ".join(argv))
        return self._answer(argv) or Finished(0, "", "")

    def read(self, path: PurePosixPath) -> bytes | None:
        return self.files.get(path)

    def write(self, path: PurePosixPath, data: bytes, *, mode: int = 0o644) -> None:
        self.files[path] = data
        self.modes[path] = mode

    def make_folder(self, path: PurePosixPath) -> None:
        """Nothing: folders are where files are."""

    def remove(self, path: PurePosixPath) -> None:
        self.files = {each: data for each, data in self.files.items() if not each.is_relative_to(path)}

    def listing(self, path: PurePosixPath) -> list[str]:
        return sorted({each.relative_to(path).parts[0] for each in self.files if each.is_relative_to(path)})

    def append(self, path: PurePosixPath, line: str) -> None:
        raise NotImplementedError

    def create_exclusive(self, path: PurePosixPath, data: bytes) -> bool:
        raise NotImplementedError

    def upload(self, folder: Path, to: PurePosixPath, progress: Callable[[int, int], None]) -> None:
        raise NotImplementedError

    def forward(self, port: int, address: str = "127.0.0.1") -> AbstractContextManager[int]:
        raise NotImplementedError

    def facts(self, root: PurePosixPath) -> HostFacts:
        raise NotImplementedError
