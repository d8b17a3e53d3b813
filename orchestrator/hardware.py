"""What a machine is made of, as far as a measurement depends on it: cards with their limits, CPU, memory nodes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import socket
from collections.abc import Callable, Collection
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil

from orchestrator import gpus

_CPU0 = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
_NODES = Path("/sys/devices/system/node")


def describe(uuids: Collection[str] | None = None) -> dict[str, Any]:
    """This machine, with the GPUs of these UUIDs or all. The host's name is hashed; nothing else names a place."""
    return {
        "host": hashlib.sha256(socket.gethostname().encode()).hexdigest()[:12],
        "cpu": _cpu_model(),
        "cores": psutil.cpu_count(logical=False),
        "threads": os.cpu_count(),
        "governor": _first_line(_CPU0),
        "numa": numa_nodes(_NODES),
        "memory_bytes": psutil.virtual_memory().total,
        "kernel": platform.release(),
        "gpus": cards(uuids),
    }


def cards(uuids: Collection[str] | None = None) -> list[dict[str, Any]]:
    """GPUs of these UUIDs, or all. What a card or its driver does not tell is None."""
    with gpus.nvml() as nvml:
        if nvml is None:
            return []
        found = [_card(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
    return [card for card in found if uuids is None or card["uuid"] in uuids]


def _card(nvml: ModuleType, index: int) -> dict[str, Any]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(call: Callable[..., Any], *arguments: Any) -> Any:
        with contextlib.suppress(nvml.NVMLError):
            value = call(*arguments)
            return value.decode() if isinstance(value, bytes) else value
        return None

    def watts(call: Callable[..., Any]) -> float | None:
        milliwatts = ask(call, handle)
        return None if milliwatts is None else milliwatts / 1000

    pci, ecc = ask(nvml.nvmlDeviceGetPciInfo, handle), ask(nvml.nvmlDeviceGetEccMode, handle)
    return {
        "index": index,
        "name": ask(nvml.nvmlDeviceGetName, handle),
        "uuid": ask(nvml.nvmlDeviceGetUUID, handle),
        "memory_bytes": int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        "sku": ask(nvml.nvmlDeviceGetBoardPartNumber, handle),
        "pci_device": f"{pci.pciDeviceId:08x}" if pci else None,
        "vbios": ask(nvml.nvmlDeviceGetVbiosVersion, handle),
        "driver": ask(nvml.nvmlSystemGetDriverVersion),
        "power_limit_w": watts(nvml.nvmlDeviceGetEnforcedPowerLimit),
        "power_default_w": watts(nvml.nvmlDeviceGetPowerManagementDefaultLimit),
        "max_sm_clock_mhz": ask(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM),
        "max_memory_clock_mhz": ask(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_MEM),
        "application_sm_clock_mhz": ask(nvml.nvmlDeviceGetApplicationsClock, handle, nvml.NVML_CLOCK_SM),
        "persistence": ask(nvml.nvmlDeviceGetPersistenceMode, handle),
        "ecc": None if ecc is None else bool(ecc[0]),
        "pcie_generation": ask(nvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
        "pcie_width": ask(nvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
    }


def numa_nodes(folder: Path) -> list[str]:
    """The CPUs of each memory node, as the kernel lists them: ["0-15", "16-31"]."""
    paths = sorted(folder.glob("node[0-9]*/cpulist"), key=lambda path: int(path.parent.name.removeprefix("node")))
    return [line for path in paths if (line := _first_line(path))]


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
