"""In which order a unit's arms are measured: rows of a Latin square, so that what comes with a place in the order, or
at a moment to all slots, meets every arm alike. Pure.

With n arms, n units in a row hold each arm in each place once, unless a row is left out among them (`_row`), and so
do the first n blocks of one point. Slots, fewer than arms, that go through units side by side never measure one arm in
the same place. Where n is even, each arm also follows each other one equally often (E. J. Williams, Aust. J. Sci. Res.
A 2, 1949).
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence


def order(arms: Sequence[str], seed: int, unit: int, points: int) -> list[str]:
    """The arms in the order of the `unit`th unit of a plan, whose units go through its `points` block by block."""
    count = len(arms)
    draw = random.Random(f"order/{seed}/{'/'.join(arms)}")
    names = draw.sample(list(arms), count)
    rows = draw.sample(range(count), count)
    return [names[(rows[_row(unit, count, points)] + step) % count] for step in _zigzag(count)]


def _row(unit: int, count: int, points: int) -> int:
    """One after the other; each time that units and points come round together, one is left out, or a point would meet
    some rows only."""
    lap = math.lcm(count, points)
    return (unit + (unit // lap if lap < count * points else 0)) % count


def _zigzag(count: int) -> list[int]:
    """0, 1, -1, 2, -2 ...: every difference between neighbours once, modulo an even count."""
    return [(step + 1) // 2 if step % 2 else -step // 2 for step in range(count)]
