"""`python -m engines.reference.software`: one line on what would serve: versions, and a digest of our own code.

Run with the interpreter that is to serve, because that is not the orchestrator's. Imports nothing heavy.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

_DISTRIBUTIONS = ("orchestrate", "torch", "ddtree-kernels")
_NOT_SERVING = {"train", "__pycache__"}


def describe() -> str:
    """Versions and code digest. ValueError names what is not installed."""
    try:
        versions = [f"{name} {version(name)}" for name in _DISTRIBUTIONS]
    except PackageNotFoundError as error:
        raise ValueError(f"{error.name} is not installed here; install orchestrate[reference]") from error
    return f"{', '.join(versions)}, code {code_digest(Path(__file__).parent, _package('ddtree'))}"


def code_digest(*folders: Path) -> str:
    """12 hexadecimal digits over the names and contents of the Python files that serve."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in _sources(folder):
            digest.update(f"{path.relative_to(folder.parent).as_posix()}\0".encode())
            digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _sources(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*.py")) if not _NOT_SERVING & set(path.relative_to(folder).parts))


def _package(name: str) -> Path:
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise ValueError(f"{name} cannot be imported here")
    return Path(spec.origin).parent


if __name__ == "__main__":
    try:
        sys.stdout.write(describe() + "\n")
    except ValueError as error:
        raise SystemExit(str(error)) from error
