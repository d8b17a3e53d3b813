"""Asking an engine's interpreter what it holds, by a script that runs there."""

from __future__ import annotations

import subprocess

from engines import containers
from engines.base import EngineError

_PROBE_S = 60


def ask(interpreter: str, script: str, engine: str, cure: str) -> str:
    """What the script, a path, prints when the interpreter (or an image's) runs it. EngineError with the last line of
    its complaint, and `cure`, where it fails.
    """
    try:
        done = subprocess.run(
            [*containers.python(interpreter), "-P", script],
            capture_output=True,
            text=True,
            timeout=_PROBE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"interpreter {interpreter}: {error}") from error
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise EngineError(f"interpreter {interpreter} cannot run {engine}: {reason}; {cure}")
    return done.stdout.strip()
