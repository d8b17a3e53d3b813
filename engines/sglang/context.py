"""Whether a model has positions for a tree after the longest context, told before a server is started.

The plugin asks SGLang for that room (docs/sglang.md) and serves less context where there is none, which would make the
arm answer shorter requests than the others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engines.base import Arm, Deployment, EngineError, Method

_SPARE = 4
"""Tokens that SGLang's table of slots has room for beside a tree."""
_PAGES = "--page-size"
"""With pages SGLang's table has the room by itself."""


def check(arm: Arm, deployment: Deployment) -> None:
    """Raise EngineError where the tree's arm cannot serve `max_context`. What the models' folders do not tell in plain
    numbers is left to the server's own report.
    """
    if arm.method is not Method.DDTREE or any(word.startswith(_PAGES) for word in deployment.arguments):
        return
    models = [_config(folder) for folder in (deployment.target, deployment.drafter) if folder is not None]
    positions = [int(found["max_position_embeddings"]) for found in models if _plain(found)]
    width = max((arm.budget or 0) + 1, int(arm.options.get("block_size") or models[-1].get("block_size") or 0))
    longest = min(positions, default=deployment.max_context + width) - width + _SPARE
    if deployment.max_context > longest:
        raise EngineError(
            f"max_context {deployment.max_context} leaves arm {arm.name!r} no positions for a tree of {width} "
            f"after it: set it to at most {longest}, for all arms"
        )


def _config(folder: str) -> Mapping[str, Any]:
    path = Path(folder) / "config.json"
    found: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found


def _plain(config: Mapping[str, Any]) -> bool:
    return "max_position_embeddings" in config and not config.get("rope_scaling")
