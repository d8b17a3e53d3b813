"""A step's time from streamed answers. Prefills come one after the other, so that answers begin and end at their own
times.
"""

import random
from collections.abc import Sequence
from typing import cast

import pytest

from benchmarks.sglang import cost
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
    found = cost._streamed_step_ms(cast(Server, Streams(batch)), batch, 8, random.Random(1))
    assert found == pytest.approx(1000 * STEP)


def test_a_tree_has_no_other_attention() -> None:
    with pytest.raises(SystemExit, match="ddtree-63@fa3: a tree has no other attention backend"):
        cost._server("ddtree-63@fa3", cast(cost.Place, None), 1)
