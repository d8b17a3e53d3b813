"""What the launchers need to know of a GPU, and the tuning table of its architecture."""

import json
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import torch


@dataclass(frozen=True)
class Target:
    """Compute capability as one number (90, 120) and the number of multiprocessors."""

    arch: int
    processors: int


# Stands in for a GPU where there is none: under the interpreter, and when kernels are only compiled.
STANDIN = [Target(90, 132)]


def target_of(device: torch.device) -> Target:
    return _query(device.index or 0) if device.type == "cuda" else STANDIN[0]


@lru_cache
def _query(index: int) -> Target:
    properties = torch.cuda.get_device_properties(index)
    return Target(properties.major * 10 + properties.minor, properties.multi_processor_count)


# A table in place of the packaged one: what `ddtree.bench --tune` found, before it is packaged.
TUNED: list[dict[str, Any]] = []


def tuning(arch: int) -> dict[str, Any]:
    """The table of the architecture: sm_90 for Hopper, sm_120, with its small shared memory, for everything else."""
    return TUNED[0] if TUNED else _packaged(arch)


@lru_cache
def _packaged(arch: int) -> dict[str, Any]:
    name = "sm_90.json" if 90 <= arch < 100 else "sm_120.json"
    table: dict[str, Any] = json.loads((files("ddtree") / "tuning" / name).read_text())
    return table
