"""Graph capture, compilation and autotuning inside the measurement: warm-up goes on until a token's time is flat."""

import pytest

from orchestrator.spec import WarmupSpec
from tests.orchestrator.test_warmup import warmed

COLD = [40.0, 11.0, 5.0, 2.0, 1.02, 1.0, 1.0]
"""Seconds a token, round by round: a capture, then shapes that are tuned."""


async def test_the_warm_up_outlasts_a_cold_start() -> None:
    warmup, _ = await warmed(COLD)
    assert warmup.flat
    assert warmup.seconds_per_token[-1] == pytest.approx(1.0, rel=0.1)


async def test_one_request_would_leave_most_of_it_in_the_measurement() -> None:
    """SGLang's own benchmark warms up with one request of at most 32 tokens."""
    warmup, _ = await warmed(COLD, min_requests=1, max_requests=1)
    assert not warmup.flat
    assert warmup.seconds_per_token[-1] > 10


async def test_it_warms_the_shapes_that_are_measured() -> None:
    _, client = await warmed([1.0, 1.0], concurrency=4)
    assert [concurrency for _, concurrency, _ in client.rounds] == [4, 4]


async def test_an_engine_that_never_settles_is_told() -> None:
    warmup, _ = await warmed([2.0, 1.0] * 8, max_requests=WarmupSpec().max_requests)
    assert not warmup.flat
