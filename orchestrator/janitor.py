"""Cleans up after a local Ray cluster, whatever ended its driver: `python orchestrator/janitor.py FOLDER`.

Most of Ray's processes end with their driver, but two agents of a killed one wait a minute for a server that is gone,
and the folder stays. The driver holds a pipe on our stdin; when that ends, every process with an open file in the
cluster's folder is killed and the folder removed. Engines have none there: they hang on leashes, which end them in
order.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

_PATIENCE_S = 20.0


def main(folder: str) -> None:
    """Wait for the end of stdin, then leave nothing of the cluster."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    driver = os.getppid()
    while os.read(sys.stdin.fileno(), 4096):
        pass
    deadline = time.monotonic() + _PATIENCE_S
    while (left := holders(folder) - {driver}) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)


def holders(folder: str) -> set[int]:
    """Processes of this user with an open file below the folder. Their names and environments cannot be told by:
    Ray writes its processes' titles over both."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if any(_target(link).startswith(f"{folder}/") for link in (entry / "fd").iterdir()):
                    found.add(int(entry.name))
    return found


def _target(link: Path) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(link)  # noqa: PTH115 - most links name no path
    return ""


if __name__ == "__main__":
    main(*sys.argv[1:])
