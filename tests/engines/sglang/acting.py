"""The scripted server as a distribution named sglang."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from engines.base import Arm, Deployment, Method
from tests.engines.scripted import Scripted, metadata
from tests.engines.sglang import server
from tests.orchestrator import acting

SOFTWARE = "sglang 0.5.17, torch 2.11.0, ddtree-kernels 0.1.0 code 0123456789ab"


def distribution(folder: Path, version: str = "0.5.17", plugin: bool = True) -> Path:
    """A folder for PYTHONPATH that holds the scripted server as `sglang`, with the metadata of distributions."""
    (folder / "sglang").mkdir(parents=True)
    shutil.copy(server.__file__, folder / "sglang" / "launch_server.py")
    metadata(folder, "sglang", version)
    metadata(folder, "torch", "2.11.0")
    if plugin:
        (folder / "ddtree").mkdir()
        (folder / "ddtree" / "__init__.py").write_text("")
        ours = metadata(folder, "ddtree-kernels", "0.1.0")
        (ours / "entry_points.txt").write_text("[sglang.srt.plugins]\nddtree = ddtree.sglang.plugin:activate\n")
    return folder


def deployment(**changes: Any) -> Deployment:
    return acting.deployment(**{"software": SOFTWARE, "device": "cuda", "dtype": "bfloat16", "threads": 2} | changes)


SGLANG = Scripted("sglang", "SCRIPTED_SGLANG", distribution, deployment)
arm = SGLANG.arm


def tree(budget: int = 15, chain: bool = False, **options: Any) -> Arm:
    return Arm("subject", "sglang", Method.DDTREE, budget=budget, chain=chain, options=options)
