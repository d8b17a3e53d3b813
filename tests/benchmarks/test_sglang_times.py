"""A step's time from streamed answers. Prefills come one after the other, so that answers begin and end at their own
times.
"""

import random
from collections.abc import Sequence
from typing import cast

import pytest

from benchmarks.sglang import times
from benchmarks.sglang.servers import Server

STEP, PREFILL = 0.02, 1.5


class Streams:
    """A server whose requests wait for each other's prefill: the early ones stand still until the last one is read."""

    def __init__(self, batch: int) -> None:
        self.left = batch
        self.all_read = PREFILL * batch

    def arrivals(self, prompt: Sequence[int], tokens: int, **_: object) -> list[float]:
        self.left -= 1
        first = self.all_read - PREFILL * self.left
        return [first, *(self.all_read + STEP * (piece + 1) for piece in range(tokens - 1))]


@pytest.mark.parametrize("batch", [1, 4, 16])
def test_only_steps_at_which_all_requests_run_count(batch: int) -> None:
    found = times._streamed_step_ms(cast(Server, Streams(batch)), batch, 8, random.Random(1))
    assert found == pytest.approx(1000 * STEP)


class Full(Streams):
    """One that takes its last two requests once the others are over."""

    def arrivals(self, prompt: Sequence[int], tokens: int, **_: object) -> list[float]:
        times = super().arrivals(prompt, tokens)
        return [time + tokens for time in times] if self.left < 2 else times


def test_requests_that_never_run_at_once_tell_no_time() -> None:
    found = times.steps({"full": cast(Server, Full(8)), "wide": cast(Server, Streams(8))}, 8, times.HEAVY, rounds=3)
    assert found["full"] == {"failed": "6 of 8 requests ran at once"}
    assert found["wide"]["median"] == pytest.approx(1000 * STEP)
