"""SHA256SUMS: what a folder holds, in the format that `sha256sum --check` reads, so that any host can verify it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from engines.digests import sha256_of

SUMS = "SHA256SUMS"


def sums(folder: Path) -> str:
    """One line a file, sorted by name; the list itself left out."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / SUMS)
    return "".join(f"{sha256_of(path)}  {path.relative_to(folder).as_posix()}\n" for path in files)


def identity(listed: str) -> str:
    """What a folder with these sums is called: 64 hexadecimal digits."""
    return hashlib.sha256(listed.encode()).hexdigest()


def entries(listed: str) -> dict[str, str]:
    """File name to sha256. ValueError for a line that is something else."""
    found = {}
    for line in listed.splitlines():
        digest, separator, name = line.partition("  ")
        if len(digest) != 64 or not separator or not name or name.startswith("/") or ".." in name.split("/"):
            raise ValueError(f"not a line of sums: {line[:80]!r}")
        found[name] = digest
    return found


def difference(recorded: str, actual: str) -> str:
    """The first file in which two lists differ, in words; empty where they are the same."""
    before, after = entries(recorded), entries(actual)
    for name in sorted(before | after):
        if name not in after:
            return f"{name} is missing"
        if name not in before:
            return f"{name} was added"
        if before[name] != after[name]:
            return f"{name} was changed"
    return ""
