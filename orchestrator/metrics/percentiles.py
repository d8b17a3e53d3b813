"""How many requests a percentile needs."""

from __future__ import annotations

FEWEST = {50: 20, 90: 100, 99: 1000}
"""Requests by percentile: so many that ten lie beyond it."""


def indicative(requests: int) -> list[int]:
    """The percentiles that so few requests do not settle."""
    return [percent for percent, fewest in FEWEST.items() if requests < fewest]
