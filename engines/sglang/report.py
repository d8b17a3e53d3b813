"""What our plugin says of itself: a file that it writes when its self-check is over and before it takes requests.

SGLang has no place where a plugin could answer over HTTP, so the adapter names a file (DDTREE_REPORT) by the server's
port. The plugin removes an older one when it is loaded.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from engines.base import EngineError, Place

VARIABLE = "DDTREE_REPORT"
_PASSED = "passed"


@dataclass(frozen=True)
class Report:
    """`budget`: nodes without the root, of the widest tree. `widths`: what the policy chooses among, roots counted.
    `context`: tokens that a request may use; SGLang itself was asked for room for a tree more.
    """

    version: str
    budget: int
    block_size: int
    topk: int
    chain: bool
    attention: str
    policy: str
    widths: tuple[int, ...]
    context: int


def path(port: int) -> Path:
    """Where the server on that port of this machine leaves its report."""
    return Path(tempfile.gettempdir()) / f"orchestrate-{os.getuid()}-ddtree-{port}.json"


def served_path(target: str, port: int) -> Path:
    """Where a release's server leaves it, by its own view of files: the same for everyone who may ask. The model's
    folder tells servers of several users of a host apart."""
    return Path("/tmp") / f"orchestrate-ddtree-{sha256(target.encode()).hexdigest()[:8]}-{port}.json"  # noqa: S108


def served(place: Place, target: str) -> Report:
    """The report of a release's server. EngineError as `read`."""
    file = served_path(target, place.port)
    data = place.read(str(file))
    if data is None:
        raise EngineError(f"the ddtree plugin left no report at {file} on its host, so nothing shows that it runs")
    try:
        return _parse(json.loads(data), file)
    except ValueError as error:
        raise EngineError(f"{file}: the ddtree plugin's report cannot be read ({error!s:.100})") from error


def read(port: int) -> Report:
    """EngineError where there is no report, it is not ours, or the self-check did not pass."""
    file = path(port)
    try:
        if file.stat().st_uid not in (os.getuid(), 0):
            raise EngineError(f"{file}: another user wrote this report")
        told = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise EngineError(f"the ddtree plugin left no report at {file}, so nothing shows that it runs") from error
    except (OSError, ValueError) as error:
        raise EngineError(f"{file}: the ddtree plugin's report cannot be read ({error!s:.100})") from error
    return _parse(told, file)


def _parse(told: Mapping[str, Any], file: Path) -> Report:
    try:
        if told["self_check"] != _PASSED:
            raise EngineError(f"the ddtree plugin's self-check did not pass: {told['self_check']!s:.200}")
        return Report(
            version=str(told["version"]),
            budget=int(told["budget"]),
            block_size=int(told["block_size"]),
            topk=int(told["topk"]),
            chain=bool(told["chain"]),
            attention=str(told["attention"]),
            policy=str(told["policy"]),
            widths=tuple(int(width) for width in told["widths"]),
            context=int(told["context"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error!s:.100}"
        raise EngineError(f"{file}: the ddtree plugin's report cannot be read ({reason})") from error
