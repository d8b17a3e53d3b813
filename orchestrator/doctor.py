"""What a sweep needs of the machine, checked: each finding says what was found and the command that helps."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psutil

from orchestrator import gpus
from orchestrator.models import ModelEntry, known
from orchestrator.models import State as ModelState

GIB = 1 << 30
MEMORY_GIB = 6.0
DISK_GIB = 2.0


class State(StrEnum):
    GOOD = "good"
    WARNING = "warning"
    MISSING = "missing"


@dataclass(frozen=True)
class Finding:
    check: str
    state: State
    found: str
    remedy: str = ""


def examine(runs: Path) -> list[Finding]:
    """All checks, cheapest first. Imports no torch and starts no engine."""
    return [_python(), _ray(), _memory(), _disk(runs), _bfloat16(), _reference(), _gpus(), *_models()]


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    good = sys.version_info >= (3, 11)
    return Finding("python", State.GOOD if good else State.MISSING, version, "" if good else "use Python 3.11 or newer")


def _ray() -> Finding:
    return Finding("ray", State.GOOD, importlib.metadata.version("ray"))


def _memory() -> Finding:
    available = psutil.virtual_memory().available / GIB
    good = available >= MEMORY_GIB
    remedy = "" if good else f"the local profile needs {MEMORY_GIB:g} GiB"
    return Finding("memory", State.GOOD if good else State.WARNING, f"{available:.1f} GiB available", remedy)


def _disk(runs: Path) -> Finding:
    existing = next(path for path in (runs.absolute(), *runs.absolute().parents) if path.exists())
    free = shutil.disk_usage(existing).free / GIB
    good = free >= DISK_GIB
    remedy = "" if good else f"a run wants {DISK_GIB:g} GiB; --runs puts it elsewhere"
    return Finding("disk for runs", State.GOOD if good else State.MISSING, f"{free:.0f} GiB free", remedy)


def _bfloat16() -> Finding:
    cpuinfo = Path("/proc/cpuinfo")
    flags = cpuinfo.read_text(encoding="utf-8").split() if cpuinfo.exists() else []
    if "avx512_bf16" in flags or "amx_bf16" in flags:
        return Finding("CPU bfloat16", State.GOOD, "in hardware")
    remedy = "for CPU sweeps set the engine's dtype to float32 in the profile"
    return Finding("CPU bfloat16", State.WARNING, "emulated: slow", remedy)


def _reference() -> Finding:
    packages = ("torch", "safetensors", "tokenizers", "fastapi", "ddtree")
    absent = [name for name in packages if importlib.util.find_spec(name) is None]
    if absent:
        remedy = "pip install -e kernels -e '.[reference]'"
        return Finding("reference engine", State.MISSING, f"no {', '.join(absent)}", remedy)
    return Finding("reference engine", State.GOOD, f"torch {importlib.metadata.version('torch')}")


def _gpus() -> Finding:
    found = gpus.cards()
    names = ", ".join(sorted({card.name for card in found}))
    return Finding(
        "GPUs", State.GOOD, f"{len(found)} x {names}" if found else "none: the local profile runs on the CPU"
    )


def _models() -> list[Finding]:
    return [_model(entry) for entry in known()]


def _model(entry: ModelEntry) -> Finding:
    if entry.state is ModelState.PRESENT:
        return Finding(f"model {entry.name}", State.GOOD, "present")
    return Finding(f"model {entry.name}", State.WARNING, entry.state.value, f"orchestrate models fetch {entry.name}")
