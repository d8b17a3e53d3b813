"""Models for the tests: tiny ones made here, and the real pair."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import engines.reference
from engines.reference.model.checkpoint import load_drafter, load_target
from engines.reference.model.drafter import Drafter
from engines.reference.model.target import Target
from tests.engines.reference.families import write_drafter, write_target
from tests.engines.reference.naive import Naive


@dataclass(frozen=True)
class Pair:
    """A target and a drafter in float32."""

    target: Target
    drafter: Drafter
    target_folder: Path
    drafter_folder: Path


@dataclass(frozen=True)
class TinyPair(Pair):
    """`naive` is the target again, independently."""

    naive: Naive


def load_pair(target_folder: Path, drafter_folder: Path) -> tuple[Target, Drafter]:
    target = load_target(target_folder, torch.float32)
    return target, load_drafter(drafter_folder, target)


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session", params=["llama", "qwen3-sliding"])
def tiny_pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    """A vocabulary of 13, so that a random drafter is right now and then and paths of every length are accepted."""
    folder = tmp_path_factory.mktemp(request.param)
    target_folder = write_target(folder / "target", request.param)
    sliding: dict[str, Any] = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 6}
    drafter_folder = write_drafter(folder / "drafter", **(sliding if "sliding" in request.param else {}))
    target, drafter = load_pair(target_folder, drafter_folder)
    return TinyPair(target, drafter, target_folder, drafter_folder, Naive(target_folder))


@pytest.fixture(scope="session")
def real_pair() -> Pair:
    """SmolLM2-135M and the drafter that ships with the engine; the target is fetched once where it is not here."""
    target_folder = _real_target()
    drafter_folder = Path(engines.reference.__file__).parent / "drafters" / "smollm2-135m-dflash-b8"
    target, drafter = load_pair(target_folder, drafter_folder)
    return Pair(target, drafter, target_folder, drafter_folder)


def _real_target() -> Path:
    named = os.environ.get("ORCHESTRATE_TEST_MODEL")
    if named:
        return Path(named)
    from orchestrator.models import fetch

    return fetch("smollm2-135m").path
