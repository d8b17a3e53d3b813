"""The scripted server as a distribution named sglang, and trials that it serves."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from engines.base import Arm, Deployment, Method
from orchestrator.plan import Trial
from tests.engines.sglang import server
from tests.engines.vllm.acting import WARMUP, model_folder
from tests.orchestrator.acting import trial

__all__ = ["SOFTWARE", "arm", "deployment", "distribution", "model_folder", "sglang_trial", "tree"]

SOFTWARE = "sglang 0.5.17, torch 2.11.0, ddtree-kernels 0.1.0 code 0123456789ab"


def distribution(folder: Path, version: str = "0.5.17", plugin: bool = True) -> Path:
    """A folder for PYTHONPATH that holds the scripted server as `sglang`, with the metadata of distributions."""
    (folder / "sglang").mkdir(parents=True)
    shutil.copy(server.__file__, folder / "sglang" / "launch_server.py")
    _metadata(folder, "sglang", version)
    _metadata(folder, "torch", "2.11.0")
    if plugin:
        (folder / "ddtree").mkdir()
        (folder / "ddtree" / "__init__.py").write_text("")
        metadata = _metadata(folder, "ddtree-kernels", "0.1.0")
        (metadata / "entry_points.txt").write_text("[sglang.srt.plugins]\nddtree = ddtree.sglang.plugin:activate\n")
    return folder


def _metadata(folder: Path, name: str, version: str) -> Path:
    metadata = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return metadata


def deployment(**changes: Any) -> Deployment:
    values: dict[str, Any] = {
        "software": SOFTWARE,
        "interpreter": sys.executable,
        "target": "/models/target",
        "target_digest": "t",
        "drafter": "/models/drafter",
        "drafter_digest": "d",
        "device": "cuda",
        "dtype": "bfloat16",
        "threads": 2,
        "max_batch": 4,
        "max_context": 512,
        "ready_timeout_s": 20.0,
    }
    return Deployment(**values | changes)


def arm(method: Method, **options: Any) -> Arm:
    return Arm("subject", "sglang", method, options=options)


def tree(budget: int = 15, chain: bool = False, **options: Any) -> Arm:
    return Arm("subject", "sglang", Method.DDTREE, budget=budget, chain=chain, options=options)


def sglang_trial(deployed: Deployment, subject: Arm) -> Trial:
    """A trial of the fake sweep's prompts, as an arm of engine sglang."""
    planned = trial(method="dflash", warmup=WARMUP, workload={"prompts": {"count": 8}, "max_tokens": 13})
    return replace(planned, arm=subject, deployment=deployed)
