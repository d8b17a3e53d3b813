"""The files of a folder that is to be uploaded, and whether what arrived is the same."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from orchestrator.promotion.host import HostError


@dataclass(frozen=True)
class File:
    """A file to send: `name` is relative to the folder, in POSIX form; `source` is where its bytes are."""

    name: str
    source: Path
    size: int
    executable: bool

    @property
    def mode(self) -> int:
        return 0o755 if self.executable else 0o644

    def digest(self) -> str:
        with self.source.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()


def files(folder: Path) -> list[File]:
    """Every file below a folder, sorted by name. Links to files count as their content (model stores hold such links).

    HostError: there is no such folder, or it holds what cannot be sent (a link to a folder, a socket, a dead link).
    """
    if not folder.is_dir():
        raise HostError(f"{folder}: not a folder")
    found = []
    for parent, folders, names in os.walk(folder):
        for name in [*(each for each in folders if Path(parent, each).is_symlink()), *names]:
            path = Path(parent, name)
            if not path.is_file():
                raise HostError(f"{path}: cannot be sent: neither a file nor a folder")
            status = path.stat()
            relative = path.relative_to(folder).as_posix()
            found.append(File(relative, path, status.st_size, bool(status.st_mode & 0o100)))
    return sorted(found, key=lambda file: file.name)


def folders(wanted: Sequence[File]) -> list[str]:
    """The folders that hold them, parents first; relative, without the top one."""
    names = {parent.as_posix() for file in wanted for parent in PurePosixPath(file.name).parents}
    return sorted(names - {"."})


def staging(to: PurePosixPath) -> PurePosixPath:
    """Where a folder is put together before it takes its name."""
    return to.with_name(f"{to.name}.part")


def different(wanted: Sequence[File], there: Mapping[str, str]) -> list[str]:
    """Names that are missing, too many, or of other content. `there`: sha256 by name."""
    expected = {file.name: file.digest() for file in wanted}
    return sorted(name for name in expected.keys() | there.keys() if expected.get(name) != there.get(name))
