"""Sweep files for tests."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

FAKE_SWEEP: dict[str, Any] = {
    "question": "Does the fake tree beat the fake chain?",
    "arms": [
        {"method": "autoregressive"},
        {"method": "dflash"},
        {"method": "ddtree", "grid": {"budget": [7, 15]}},
    ],
    "workload": {"prompts": {"set": "orchestrate", "count": 8, "seed": 3}, "max_tokens": 12},
    "blocks": {"count": 2, "seed": 5},
    "profiles": {
        "local": {
            "match": {"cpus": 1, "memory_gib": 0.1},
            "engine": "fake",
            "engines": {"fake": {"dtype": "float32"}},
            "models": {"target": "TARGET", "drafter": "DRAFTER"},
        }
    },
}


def fake_sweep(**changes: Any) -> dict[str, Any]:
    """The fake sweep with top-level keys replaced."""
    return copy.deepcopy(FAKE_SWEEP) | changes


def write_sweep(folder: Path, sweep: dict[str, Any]) -> Path:
    path = folder / "sweep.yaml"
    path.write_text(yaml.safe_dump(sweep, sort_keys=False), encoding="utf-8")
    return path
