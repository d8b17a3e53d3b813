"""A GPU that is not there: NVML's answers from a script, for tests of what is made of them. Simulated throughout."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

UUID = "GPU-simulated"


@dataclass
class Moment:
    """What the card says at one reading."""

    clock: int = 1980
    watts: float = 500.0
    celsius: int = 60
    reasons: int = 0
    processes: Sequence[int] = ()


class NVMLError(Exception):
    pass


@dataclass
class ScriptedNvml:
    """`now` is what a reading finds. `unsupported`: calls that the card refuses."""

    now: Moment = field(default_factory=Moment)
    unsupported: frozenset[str] = frozenset()
    NVMLError = NVMLError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in self.unsupported:
            return _refuse
        answers = {
            "nvmlInit": None,
            "nvmlShutdown": None,
            "nvmlDeviceGetCount": 1,
            "nvmlDeviceGetHandleByIndex": 0,
            "nvmlDeviceGetHandleByUUID": 0,
            "nvmlDeviceGetName": "NVIDIA simulated",
            "nvmlDeviceGetUUID": UUID,
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=1 << 37),
            "nvmlDeviceGetBoardPartNumber": b"900-SIMULATED",
            "nvmlDeviceGetPciInfo": SimpleNamespace(pciDeviceId=0x233510DE),
            "nvmlDeviceGetVbiosVersion": "96.00.SIM",
            "nvmlSystemGetDriverVersion": "570.1",
            "nvmlDeviceGetEnforcedPowerLimit": 700_000,
            "nvmlDeviceGetPowerManagementDefaultLimit": 700_000,
            "nvmlDeviceGetMaxClockInfo": 1980,
            "nvmlDeviceGetApplicationsClock": 1980,
            "nvmlDeviceGetPersistenceMode": 1,
            "nvmlDeviceGetEccMode": [1, 1],
            "nvmlDeviceGetMaxPcieLinkGeneration": 5,
            "nvmlDeviceGetCurrPcieLinkWidth": 16,
            "nvmlDeviceGetClockInfo": self.now.clock,
            "nvmlDeviceGetPowerUsage": int(1000 * self.now.watts),
            "nvmlDeviceGetTemperature": self.now.celsius,
            "nvmlDeviceGetCurrentClocksThrottleReasons": self.now.reasons,
            "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=pid) for pid in self.now.processes],
        }
        if name not in answers:
            raise AttributeError(name)
        return lambda *_: answers[name]

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pynvml", self)  # type: ignore[arg-type]


def _refuse(*_: object) -> None:
    raise NVMLError("not supported")
