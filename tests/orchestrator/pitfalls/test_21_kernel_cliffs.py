"""96 to 128 packed tokens: +24 % of verify time on Qwen3-8B (CAST). Powers of two alone step over where it is."""

import pytest

from orchestrator.metrics.curve import cliffs
from tests.orchestrator.test_outputs import point

MEASURED = {16: 22.0, 32: 22.5, 48: 23.0, 64: 23.4, 80: 23.9, 96: 24.41, 112: 29.8, 128: 30.25}
"""Milliseconds a verify forward; at 96 and 128 as published, the others on the slope between."""


def test_the_cliff_is_found_where_it_is() -> None:
    (cliff,) = cliffs([point(width, ms) for width, ms in MEASURED.items()])
    assert (cliff.before, cliff.at) == (96, 112)
    assert "verify cliff between 96 and 112 tokens" in cliff.name


def test_powers_of_two_would_put_it_elsewhere() -> None:
    (cliff,) = cliffs([point(width, ms) for width, ms in MEASURED.items() if width in (16, 32, 64, 128)])
    assert (cliff.before, cliff.at) == (64, 128)


@pytest.mark.parametrize(("base", "slope"), [(2.0, 0.005), (20.0, 0.05), (200.0, 0.5), (4.0, 0.25)])
def test_a_curve_without_one_has_none(base: float, slope: float) -> None:
    """However steep: at 4 ms + 0.25 ms a token each width costs half as much again as the one before it."""
    assert cliffs([point(width, base + slope * width) for width in MEASURED]) == []
