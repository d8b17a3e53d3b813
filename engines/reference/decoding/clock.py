"""Where the time of a step goes."""

from time import perf_counter

import torch

from engines.reference.decoding.request import StageTimes


class StageClock:
    """Adds wall-clock laps to StageTimes. On CUDA a lap waits for the device, so that a stage holds its own work."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._last = 0.0
        self.times = StageTimes()

    def start(self) -> None:
        self._last = perf_counter()

    def lap(self, stage: str) -> None:
        """Book the time since the last lap or start under `stage`, a field of StageTimes."""
        if self._cuda:
            torch.cuda.synchronize()
        now = perf_counter()
        setattr(self.times, stage, getattr(self.times, stage) + now - self._last)
        self._last = now
