"""What a server says of files, looked up where it runs: on this machine, or at the endpoint's place."""

from __future__ import annotations

from pathlib import Path

from engines import digests
from engines.base import EngineError, Place


def digest(place: Place | None, folder: str) -> str:
    """Of a folder that the server says it loaded. EngineError where there is none."""
    here = digests.digest(Path(folder)) if place is None and Path(folder).is_dir() else None
    found = here if place is None else place.digest(folder)
    if found is None:
        where = "here" if place is None else "on its host"
        raise EngineError(f"the server loaded {folder!r}, which is no folder {where}: its digest cannot be taken")
    return found
