"""Tokens over the whole wall time charge an arm for the tail in which the load itself ran out."""

import pytest

from orchestrator.load.record import phases
from orchestrator.metrics import open_window, steady_window, tokens_within
from orchestrator.records import PhaseRecord
from tests.orchestrator.sample import frame, request
from tests.orchestrator.test_metrics import summary


def answer(name: str, sent: float, last: float, concurrency: int = 2) -> dict[str, object]:
    """Ten tokens a second, from when it was sent."""
    tokens = round(10 * (last - sent))
    times = {"scheduled": sent, "sent": sent, "first": sent, "last": last, "first_chunk_tokens": 0}
    return request(prompt_id=name, output_tokens=tokens, concurrency=concurrency, **times)


LOAD = frame(answer("a", 0.0, 2.0), answer("b", 1.0, 3.0), answer("c", 2.0, 4.0), answer("d", 3.0, 13.0))
"""Two slots from 1 s to 4 s; one slot alone before, and for nine seconds after."""


def test_the_window_is_where_every_slot_is_busy() -> None:
    window = steady_window(LOAD, 2)
    assert window == (1.0, 4.0)
    assert tokens_within(LOAD, window) / 3.0 == pytest.approx(20.0)


def test_the_rate_reported_is_the_windows() -> None:
    whole_wall = LOAD["output_tokens"].sum() / 13.0
    assert whole_wall == pytest.approx(160 / 13)
    assert summary(LOAD).output_tok_s.estimate == pytest.approx(20.0, rel=0.01)


def test_ramp_and_drain_are_told_apart() -> None:
    ramp, drain = phases(LOAD, (1.0, 4.0))
    assert (ramp.seconds, drain.seconds) == (1.0, 9.0)
    assert (ramp.tokens, drain.tokens) == (pytest.approx(10), pytest.approx(90))
    assert phases(LOAD, (0.0, 13.0)) == (PhaseRecord(seconds=0, tokens=0), PhaseRecord(seconds=0, tokens=0))


def test_an_open_loops_window_ends_with_its_arrivals() -> None:
    assert open_window(LOAD) == (2.0, 3.0)
    alone = frame(answer("a", 0.0, 2.0))
    assert open_window(alone) == (0.0, 2.0)
