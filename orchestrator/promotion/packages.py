"""Which distributions an interpreter has, wherever it is, and what differs from those that were measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from engines import packages
from orchestrator.errors import InputError
from orchestrator.promotion.host import Finished

Packages = Mapping[str, Sequence[str]]

TIMEOUT_S = 120.0


def describe(python: Sequence[str], run: Callable[[Sequence[str]], Finished]) -> dict[str, object]:
    """`python` and `packages` of an interpreter, wherever `run` runs a command. InputError where it cannot say."""
    done = run([*python, "-I", "-c", Path(packages.__file__).read_text(encoding="utf-8")])
    try:
        return dict(json.loads(done.out))
    except (ValueError, TypeError) as error:
        reason = (done.err.strip().splitlines() or [f"exit code {done.code}"])[-1]
        raise InputError(f"interpreter {python[-1]}: its packages cannot be listed: {reason}") from error


def differences(measured: Packages, here: Packages) -> list[str]:
    """The distributions that are not the same, in words."""
    found = []
    for name in sorted({*measured, *here}):
        before, after = measured.get(name), here.get(name)
        if before is None or after is None:
            found.append(f"{name} is {'missing' if after is None else 'added'}")
        elif before[0] != after[0]:
            found.append(f"{name} {after[0]} instead of {before[0]}")
        elif before[1] != after[1]:
            found.append(f"{name} {after[0]} has other files")
    return found
