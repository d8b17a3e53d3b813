"""In what two runs differ, and which of it makes their numbers incomparable. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.records import Record

REFUSED = (
    r"cpu",
    r"gpus\.\d+\.(name|sku)",
    r"inputs\.protocol",
    r"inputs\.prompts\.(digest|set|version)",
    r"inputs\.workload\..*",
    r"inputs\.chat_template\..*",
    r"inputs\.engines\.[^.]+\.(target_digest|dtype|device|max_batch|max_context)",
)
"""Another question: other hardware, prompts, workload or target. What else differs is told, and may be what is asked
about: a drafter, a driver, an engine's version, our commit."""

_UNSAID = (
    r"host",
    r"gpus\.\d+\.(uuid|index)",
    r"uncommitted_changes",
    r"inputs\.seeds\..*",
    r"inputs\.prompts\.seed",
    r"inputs\.engines\.[^.]+\.packages_digest",
)
"""Differs between any two machines or draws and says nothing of the speed, or is told piece by piece."""

_NAMED = 5


class Difference(Record):
    """One thing that differs; None where a run does not say. `refused`: the runs cannot be compared."""

    what: str
    before: str | None
    after: str | None
    refused: bool


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """Of two environment.json, refusals first. What only one of them records is told, and refuses nothing."""
    old, new = dict(_flat(before)), dict(_flat(after))
    found = [
        Difference(what=name, before=old.get(name), after=new.get(name), refused=_refuses(name, old, new))
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name) and not _matches(name, _UNSAID)
    ]
    return sorted(found, key=lambda item: not item.refused)


def other_packages(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The packages of engines' interpreters that differ, in one line; empty for none."""
    names = [item.what.removeprefix("inputs.engines.") for item in differences(before, after)]
    parted = [name.replace(".packages.", ": ", 1) for name in names if ".packages." in name]
    more = f" and {len(parted) - _NAMED} more" if len(parted) > _NAMED else ""
    return ", ".join(parted[:_NAMED]) + more


def _refuses(name: str, old: Mapping[str, str], new: Mapping[str, str]) -> bool:
    return name in old and name in new and _matches(name, REFUSED)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in patterns)


def _flat(value: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Dotted paths to leaves, as text; list items by their index."""
    if isinstance(value, Mapping) or (isinstance(value, list) and value and isinstance(value[0], Mapping)):
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, item in items:
            yield from _flat(item, f"{prefix}.{key}" if prefix else str(key))
    elif value is not None:
        yield prefix, str(value)
