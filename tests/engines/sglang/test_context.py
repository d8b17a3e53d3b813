"""Every arm of a sweep must be able to serve the longest request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engines.base import Arm, Deployment, EngineError, Method
from engines.sglang import context
from tests.engines.sglang.acting import arm, deployment, tree


def deployed(folder: Path, max_context: int, target: dict[str, Any] | None = None, **changes: Any) -> Deployment:
    """A target of 8192 positions unless told otherwise, and a drafter of block 16."""
    configs = {"target": target or {"max_position_embeddings": 8192}, "drafter": {"block_size": 16}}
    for name, config in configs.items():
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "config.json").write_text(json.dumps(config))
    models = {name: str(folder / name) for name in configs}
    return deployment(max_context=max_context, **models, **changes)


@pytest.mark.parametrize(
    ("subject", "longest"),
    [(tree(63), 8192 - 64 + 4), (tree(7), 8192 - 16 + 4), (tree(7, block_size=8), 8192 - 8 + 4)],
    ids=["by its budget", "by the drafter's block", "by the arm's block"],
)
def test_a_tree_needs_positions_after_the_context(tmp_path: Path, subject: Arm, longest: int) -> None:
    context.check(subject, deployed(tmp_path, longest))
    with pytest.raises(EngineError, match=f"max_context {longest + 1} leaves arm .* at most {longest},"):
        context.check(subject, deployed(tmp_path, longest + 1))


def test_other_arms_and_pages_need_none(tmp_path: Path) -> None:
    context.check(arm(Method.DFLASH), deployed(tmp_path, 8192))
    context.check(arm(Method.AUTOREGRESSIVE), deployed(tmp_path, 8192))
    context.check(tree(63), deployed(tmp_path, 8192, arguments=("--page-size", "64")))


def test_what_the_folders_do_not_tell_is_left_to_the_server(tmp_path: Path) -> None:
    stretched = {"max_position_embeddings": 8192, "rope_scaling": {"factor": 4}}
    context.check(tree(63), deployed(tmp_path, 9000, stretched))
    context.check(tree(63), deployment(max_context=9000))
