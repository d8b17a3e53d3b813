"""A step's time from streamed answers. Prefills come one after the other, so that answers begin and end at their own
times.
"""

import random
from collections.abc import Sequence
from typing import Any, cast

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


class Full(Streams):
    """One that takes its last two requests once the others are over."""

    def arrivals(self, prompt: Sequence[int], tokens: int, **_: object) -> list[float]:
        times = super().arrivals(prompt, tokens)
        return [time + tokens for time in times] if self.left < 2 else times


def test_requests_that_never_run_at_once_tell_no_time() -> None:
    found = cost._heavy_point({"full": cast(Server, Full(8)), "wide": cast(Server, Streams(8))}, 8, 4)
    assert found["full"] == {"failed": "6 of 8 requests ran at once"}
    assert found["wide"]["median"] == pytest.approx(1000 * STEP)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ar", {"attention_backend": "triton"}),
        ("dflash@fa3", {"attention_backend": "fa3"}),
        ("ddtree-63", {"prefill_attention_backend": "triton"}),
        ("ddtree-63@fa3", {"prefill_attention_backend": "fa3"}),
        ("chain-15", {"prefill_attention_backend": "triton"}),
        ("auto-63@fa3", {"prefill_attention_backend": "fa3", "policy": "auto"}),
    ],
)
def test_a_name_says_the_attention_and_the_shape(
    name: str, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "Server", lambda subject, *_: subject)
    found = cast(Any, cost._server(name, cast(cost.Place, None), 1))
    assert (found.name, found.options, found.chain) == (name, options, name == "chain-15")
