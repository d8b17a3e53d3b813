"""Fetched models on disk: complete or not there, made by one process at a time, each file known by its digest.

Everything is built in a hidden folder beside its place and renamed into it, so a model's folder is never half made.
What a killed fetch leaves is hidden, never read, and cleared by the next one under the lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path

from engines.digests import MANIFEST, counted_files, file_digests, sha256_of
from engines.home import models_folder
from engines.progress import Clock


class State(StrEnum):
    """What is at a model's place."""

    PRESENT = "present"
    MISSING = "missing"
    DAMAGED = "damaged"
    OUTDATED = "outdated"


def place(name: str) -> Path:
    return models_folder() / name


def state(name: str, origin: Mapping[str, str]) -> State:
    """PRESENT when every file is what the manifest says, digests compared, and made from `origin`."""
    folder = place(name)
    if not folder.exists():
        return State.MISSING
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        if manifest["files"] != file_digests(folder):
            return State.DAMAGED
        return State.PRESENT if manifest["origin"] == origin else State.OUTDATED
    except (OSError, ValueError, KeyError, TypeError):
        return State.DAMAGED


@contextlib.contextmanager
def locked(name: str, clock: Clock) -> Iterator[None]:
    """Hold the model's lock file; wait while another process has it. The kernel releases it if we die."""
    models_folder().mkdir(parents=True, exist_ok=True)
    with (models_folder() / f".{name}.lock").open("w") as lock:
        while not _acquired(lock.fileno()):
            clock.show("waiting for another fetch")
            time.sleep(0.2)
        yield


def _acquired(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def workshop(name: str) -> Iterator[Path]:
    """A hidden folder on the same disk, gone afterwards. Clears those of killed fetches; call it under the lock."""
    for leftover in models_folder().glob(f".{name}.making-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(
        dir=models_folder(), prefix=f".{name}.making-", ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)


def publish(name: str, built: Path, origin: Mapping[str, str], workplace: Path) -> None:
    """Write the manifest into the built folder and move it to its place; what stands there goes first."""
    files = {file: sha256_of(path) for file, path in counted_files(built).items()}
    manifest = {"name": name, "origin": dict(origin), "files": files}
    (built / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    if place(name).exists():
        place(name).rename(workplace / "before")
    built.rename(place(name))
