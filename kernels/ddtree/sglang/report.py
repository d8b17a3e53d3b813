"""What the server runs, in its own words: a JSON file for whoever measures it."""

import json
import os
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from ddtree.sglang.settings import Settings


def write(
    path: Path,
    settings: Settings,
    widths: list[int],
    context: int,
    cost: Sequence[Mapping[str, float]] | None,
    checked: str,
) -> None:
    """Whole or not at all: the reader may be waiting for it."""
    words = {
        "version": metadata.version("ddtree-kernels"),
        "budget": settings.budget,
        "policy": settings.policy,
        "chain": settings.chain,
        "block_size": settings.block_size,
        "topk": settings.candidates,
        "attention": settings.attention,
        "widths": widths,
        "context": context,
        "cost_model": cost,
        "self_check": checked,
    }
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(words, indent=1) + "\n", encoding="utf-8")
    draft.replace(path)
