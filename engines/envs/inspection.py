"""What `orchestrate engines check` says of an environment."""

from __future__ import annotations

from dataclasses import dataclass

from engines.base import EngineError
from engines.envs.catalogue import Environment
from engines.envs.installation import State, installed_version, state
from engines.envs.suitability import obstacle


@dataclass(frozen=True)
class Finding:
    """`version`: installed, or pinned where it is missing. `remedy`: the one command that helps; empty for none."""

    name: str
    engine: str
    state: str
    version: str
    obstacle: str
    remedy: str
    usable: bool


def inspect(entry: Environment) -> Finding:
    """An installed environment is asked for its version, so that a damaged one shows."""
    condition, version = state(entry), f"{entry.version} (pinned)"
    found = condition.value
    if condition is not State.MISSING:
        try:
            version = installed_version(entry)
        except EngineError as error:
            condition, found = State.MISSING, f"damaged: {error}"
    reason = obstacle(entry)
    remedy = _remedy(entry, condition) if not reason else ""
    return Finding(entry.name, entry.engine, found, version, reason, remedy, not reason and not remedy)


def _remedy(entry: Environment, condition: State) -> str:
    return "" if condition is State.INSTALLED else f"orchestrate engines install {entry.name}"
