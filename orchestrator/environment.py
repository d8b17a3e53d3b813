"""What a run was measured on: environment.json. The host's name is hashed; nothing else here names a place."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import platform
import socket
import subprocess
from dataclasses import asdict
from pathlib import Path

import psutil

from orchestrator import gpus

PACKAGES = ("orchestrate", "ddtree-kernels", "torch", "triton", "ray", "numpy", "pandas", "aiohttp")
_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def describe() -> dict[str, object]:
    """The driver's machine and software. Slots on other nodes say what they are in their trials' identities."""
    return {
        "host": hashlib.sha256(socket.gethostname().encode()).hexdigest()[:12],
        "cpu": _cpu_model(),
        "cores": psutil.cpu_count(logical=False),
        "threads": os.cpu_count(),
        "governor": _first_line(_GOVERNOR),
        "memory_bytes": psutil.virtual_memory().total,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
        "gpus": [asdict(card) for card in gpus.cards()],
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain")),
    }


def _cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def _first_line(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git(*arguments: str) -> str | None:
    """What git says about the product's own folder; None where it is no repository or git is not there."""
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
