"""Whether an open loop asks for more than the server can do, seen while it runs.

A server whose capacity equals its load has a queue that wanders like a random walk: after n requests it has moved by
about sqrt(n (ca^2 + cs^2)), where ca and cs are the coefficients of variation of the gaps between requests and of the
times to serve one (Kingman, Proc. Cambridge Phil. Soc. 57, 1961; cs = 1 is taken here). With capacity to spare it
stays below that; above capacity it grows in proportion to n and without bound (Loynes, ibid. 58, 1962). So a load is
over-saturated when more requests wait than `LIMIT` times that wandering explains. (guidellm's over-saturation
constraint regresses concurrency and TTFT on time instead.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

LIMIT = 3.0
_FEWEST = 20
"""Requests before which nothing is said."""


class Backlog:
    """Counts what was sent and what was answered. `slots`: the requests that the server works on at once."""

    def __init__(self, slots: int, offsets: Sequence[float]) -> None:
        self._slots = slots
        self._variation = squared_variation(offsets)
        self._sent = 0
        self._answered = 0

    def sent(self) -> None:
        self._sent += 1

    def answered(self) -> None:
        self._answered += 1

    @property
    def waiting(self) -> int:
        """Requests beyond those that the server works on."""
        return max(0, self._sent - self._answered - self._slots)

    def excess(self, seconds: float) -> str:
        """Why this load is over-saturated, `seconds` after it began; empty while it is not."""
        bound = LIMIT * math.sqrt(self._sent * (self._variation + 1))
        if self._sent < _FEWEST or self.waiting <= bound:
            return ""
        return (
            f"over-saturated: {self._sent / seconds:.2f} requests/s were sent and {self._answered / seconds:.2f} "
            f"answered; after {seconds:.0f} s {self.waiting} wait, and a server that keeps up has at most {bound:.0f}"
        )


def squared_variation(offsets: Sequence[float]) -> float:
    """Squared coefficient of variation of the gaps between `offsets`: 0 for constant ones, 1 for a Poisson process."""
    gaps = [after - before for before, after in pairwise(offsets)]
    mean = sum(gaps) / len(gaps) if gaps else 0.0
    return sum((gap - mean) ** 2 for gap in gaps) / len(gaps) / mean**2 if mean > 0 else 0.0
