"""Model folders in Hugging Face's layout, wherever they come from."""

from __future__ import annotations

import importlib.resources
import json
from pathlib import Path

from orchestrator.models.errors import ModelError

INDEX = "model.safetensors.index.json"


def shipped_drafter(name: str) -> Path:
    """The folder of a drafter inside the installed product. Imports nothing of the engine."""
    return Path(str(importlib.resources.files("engines"))) / "reference" / "drafters" / name


def check_folder(folder: Path) -> None:
    """ModelError unless it holds config.json and safetensors weights with every shard of their index."""
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder}: not a model folder: it holds no config.json")
    if not any(folder.glob("*.safetensors")):
        raise ModelError(f"{folder}: not a model folder: it holds no *.safetensors weights")
    missing = sorted(shard for shard in _shards(folder) if not (folder / shard).is_file())
    if missing:
        raise ModelError(f"{folder}: incomplete: {missing[0]} is listed in {INDEX} and not there")


def _shards(folder: Path) -> set[str]:
    index = folder / INDEX
    if not index.is_file():
        return set()
    try:
        return set(json.loads(index.read_text())["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{index}: not a safetensors index: {error!r}") from error
