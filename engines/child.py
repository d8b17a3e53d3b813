"""A child process that is watched, shown, and ended with its parent's work."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from engines.progress import Clock


def run_child(
    command: Sequence[str], stage: str, folder: Path, environment: dict[str, str], clock: Clock
) -> str | None:
    """Run to the end in `folder`. None on success, else what the child wrote.

    The child is killed when anything, an interrupt included, ends the wait.
    """
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as child:
        try:
            output = _wait(child, stage, clock)
        except BaseException:
            child.kill()
            child.wait()  # after an interrupt, leaving the block does not
            raise
    return None if child.returncode == 0 else output or f"exit code {child.returncode}"


def _wait(child: subprocess.Popen[str], stage: str, clock: Clock) -> str:
    while True:
        clock.show(stage)
        try:
            return child.communicate(timeout=0.25)[0]
        except subprocess.TimeoutExpired:
            continue
