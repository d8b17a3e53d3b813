"""Nested values as lines of a table."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_PACKAGES = re.compile(r"inputs\.engines\.[^.]+\.packages")


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested values as dotted names and texts. Of an engine's packages the number: their digest stands beside it."""
    for key, value in values.items():
        name = f"{prefix}{key}"
        if _PACKAGES.fullmatch(name) and value:
            yield name, f"{len(value)} installed"
        elif isinstance(value, Mapping) and value:
            yield from flatten(value, f"{name}.")
        else:
            yield name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
