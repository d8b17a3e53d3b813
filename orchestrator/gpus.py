"""NVIDIA GPUs as NVML sees them. No GPU or no driver is an empty list, never an error."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType

_MODEL = re.compile(r"\w+\s+((?:[A-Z]+\s+)*[A-Z0-9]*\d[A-Z0-9]*)")


@dataclass(frozen=True)
class Card:
    """One GPU. `name` is NVML's, `uuid` its serial identity."""

    index: int
    name: str
    uuid: str
    memory_bytes: int
    power_limit_w: float

    @property
    def accelerator(self) -> str:
        return accelerator_name(self.name)


def accelerator_name(name: str) -> str:
    """Ray's accelerator type for an NVML name: "NVIDIA H200" -> "H200", "NVIDIA RTX PRO 6000 ..." -> "RTX-PRO-6000"."""
    model = _MODEL.match(name)
    return (model.group(1) if model else name.removeprefix("NVIDIA ").strip()).replace(" ", "-")


@dataclass(frozen=True)
class Reading:
    """Several GPUs at one moment: the slowest clock, summed power, the highest temperature, all throttle reasons."""

    sm_clock_mhz: int
    power_w: float
    temperature_c: int
    throttle_reasons: int
    processes: frozenset[int]


@contextlib.contextmanager
def nvml() -> Iterator[ModuleType | None]:
    """NVML, open; None without a GPU or a driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def cards() -> list[Card]:
    """All GPUs of this machine."""
    with nvml() as library:
        if library is None:
            return []
        return [_card(library, index) for index in range(library.nvmlDeviceGetCount())]


def _card(library: ModuleType, index: int) -> Card:
    handle = library.nvmlDeviceGetHandleByIndex(index)
    return Card(
        index=index,
        name=_text(library.nvmlDeviceGetName(handle)),
        uuid=_text(library.nvmlDeviceGetUUID(handle)),
        memory_bytes=int(library.nvmlDeviceGetMemoryInfo(handle).total),
        power_limit_w=library.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
    )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def given(identifiers: Sequence[str]) -> list[Card]:
    """The cards behind Ray's ids: indices of this machine's GPUs, or UUIDs."""
    wanted = {str(identifier) for identifier in identifiers}
    return [card for card in cards() if wanted & {str(card.index), card.uuid}]


class Monitor:
    """Reads the state of some GPUs; holds NVML open between readings."""

    def __init__(self, uuids: Sequence[str]) -> None:
        self._stack = contextlib.ExitStack()
        self._nvml = self._stack.enter_context(nvml())
        self._handles = [self._nvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids] if self._nvml else []

    def read(self) -> Reading | None:
        """The reading now; None without GPUs."""
        nvml, handles = self._nvml, self._handles
        if nvml is None or not handles:
            return None
        running = [process.pid for handle in handles for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)]
        reasons = 0
        for handle in handles:
            reasons |= nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        return Reading(
            sm_clock_mhz=min(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) for handle in handles),
            power_w=sum(nvml.nvmlDeviceGetPowerUsage(handle) for handle in handles) / 1000,
            temperature_c=max(nvml.nvmlDeviceGetTemperature(h, nvml.NVML_TEMPERATURE_GPU) for h in handles),
            throttle_reasons=reasons,
            processes=frozenset(running),
        )

    def close(self) -> None:
        self._stack.close()
