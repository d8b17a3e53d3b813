"""Writing to this machine's disks so that a power cut leaves the old content or the new, and nothing between."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from orchestrator.promotion.hosts.tree import File, folders

_CHUNK = 1 << 20


def replace(path: Path, data: bytes, mode: int) -> None:
    with _beside(path, data, mode) as temporary:
        temporary.replace(path)
    sync_folder(path.parent)


def create(path: Path, data: bytes) -> bool:
    """Make a file that did not exist, whole from the start, as one opened exclusively is not. False where it does."""
    with _beside(path, data, 0o644) as temporary:
        try:
            path.hardlink_to(temporary)
        except FileExistsError:
            return False
    sync_folder(path.parent)
    return True


def append(path: Path, line: bytes) -> None:
    """Add to a file, all of it or, on a full disk, nothing."""
    with path.open("ab", buffering=0) as file:
        before = os.fstat(file.fileno()).st_size
        try:
            if file.write(line) != len(line):
                raise OSError(28, "No space left on device")
            os.fsync(file.fileno())
        except OSError:
            os.ftruncate(file.fileno(), before)
            raise
    if before == 0:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """What the folder lists is on the disk after this."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def copy(wanted: Sequence[File], to: Path, progress: Callable[[int], None]) -> None:
    """Have `to` hold the wanted files and no other; goes on where an earlier copy stopped, whatever it left."""
    to.mkdir(parents=True, exist_ok=True)
    for name in folders(wanted):
        (to / name).mkdir(exist_ok=True)
    for name in names(to) - {file.name for file in wanted}:
        (to / name).unlink()
    done = 0
    for file in wanted:
        for count in _continue(file, to / file.name):
            done += count
            progress(done)


def digests(folder: Path) -> dict[str, str]:
    """sha256 of every file below a folder, by its relative name."""
    found = {}
    for name in names(folder):
        with (folder / name).open("rb") as stream:
            found[name] = hashlib.file_digest(stream, "sha256").hexdigest()
    return found


def names(folder: Path) -> set[str]:
    """Everything below a folder that is no folder."""
    return {each.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_symlink() or not each.is_dir()}


def _continue(file: File, to: Path) -> Iterator[int]:
    """Copy what is missing at the end of a file; yields byte counts, what was there first."""
    there = to.stat().st_size if to.exists() else 0
    if there > file.size:
        there = 0
    with file.source.open("rb") as source, to.open("r+b" if there else "wb") as target:
        source.seek(there)
        target.seek(there)
        yield there
        while chunk := source.read(_CHUNK):
            target.write(chunk)
            yield len(chunk)
        target.flush()
        os.fsync(target.fileno())
    to.chmod(file.mode)


@contextlib.contextmanager
def _beside(path: Path, data: bytes, mode: int) -> Iterator[Path]:
    """A synced file with this content in the same folder, gone afterwards unless it was renamed."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
