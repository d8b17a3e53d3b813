"""Digests of model folders. Only the standard library, so that an engine can say the same of what it loaded.

A file's sha256 is remembered by its size and modification time, so a folder is read once and not at every start.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePath, PurePosixPath

from engines.home import home

MANIFEST = "manifest.json"
Stamp = tuple[int, int]


def digest(folder: Path) -> str:
    """sha256 over the sorted (relative name, sha256 of the content) of the folder's files.

    Left out: hidden files and folders, and the manifest, which is about the files and not one of them.
    """
    return digest_of(file_digests(folder))


def digest_of(files: Mapping[str, str]) -> str:
    """The digest of a folder whose files (relative name to sha256) are told by somebody else."""
    counted = {name: sha256 for name, sha256 in files.items() if _counts(PurePosixPath(name))}
    return hashlib.sha256("".join(f"{counted[name]}  {name}\n" for name in sorted(counted)).encode()).hexdigest()


def file_digests(folder: Path) -> dict[str, str]:
    """Relative name (with /) to sha256, links followed; read only where they changed."""
    remembered = _recall(folder)
    found: dict[str, tuple[Stamp, str]] = {}
    for name, path in counted_files(folder).items():
        status = path.stat()
        stamp = (status.st_size, status.st_mtime_ns)
        known = remembered.get(name)
        found[name] = known if known and known[0] == stamp else (stamp, sha256_of(path))
    if found != remembered:
        _remember(folder, found)
    return {name: sha256 for name, (_, sha256) in found.items()}


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def counted_files(folder: Path) -> dict[str, Path]:
    """Relative name to path of the files that a digest is made of."""
    names = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
    return {name.as_posix(): path for name, path in names.items() if _counts(name)}


def _counts(name: PurePath) -> bool:
    return name.as_posix() != MANIFEST and not any(part.startswith(".") for part in name.parts)


def _memory(folder: Path) -> Path:
    key = hashlib.sha256(str(folder.absolute()).encode()).hexdigest()[:32]
    return home() / "digests" / f"{key}.json"


def _recall(folder: Path) -> dict[str, tuple[Stamp, str]]:
    """What was computed before; nothing when there is no memory or it is damaged, which costs time only."""
    try:
        entries = json.loads(_memory(folder).read_text())
        return {name: ((size, modified), sha256) for name, (size, modified, sha256) in entries.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _remember(folder: Path, found: Mapping[str, tuple[Stamp, str]]) -> None:
    """Best effort: a home that cannot be written only means computing again."""
    entries = {name: (*stamp, sha256) for name, (stamp, sha256) in found.items()}
    with contextlib.suppress(OSError):
        _memory(folder).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(_memory(folder), json.dumps(entries, indent=1))


def write_atomically(path: Path, text: str) -> None:
    """Replace the file as a whole: a reader sees the old text or the new one."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
