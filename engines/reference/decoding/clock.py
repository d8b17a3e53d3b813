"""Where the time of a step goes."""

from time import perf_counter

import torch

from engines.reference.decoding.request import StageTimes


class StageClock:
    """Adds wall-clock laps to StageTimes. On CUDA a lap waits for the device, so that a stage holds its own work.

    It runs on between two steps while there is work: handing tokens over costs time, and mostly that of waiting for the
    interpreter, which the other thread then has.
    """

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._last: float | None = None
        self.times = StageTimes()

    def start(self) -> None:
        """Begin a step: at the end of the one before it, or now after a pause."""
        if self._last is None:
            self._last = perf_counter()

    def pause(self) -> None:
        """There is nothing to do: what passes until the next start is booked nowhere."""
        self._last = None

    def lap(self, stage: str) -> None:
        """Book the time since the last lap or start under `stage`, a field of StageTimes."""
        assert self._last is not None
        if self._cuda:
            torch.cuda.synchronize()
        now = perf_counter()
        setattr(self.times, stage, getattr(self.times, stage) + now - self._last)
        self._last = now
