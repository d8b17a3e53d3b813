"""Which width to verify next: what a tree of each width should bring, by what a step with it costs.

Pure Python and host numbers; nothing here waits for the GPU. The drafter's own probabilities say how many tokens each
width would have brought (the sum of its nodes' path probabilities, DDTree's objective); how far they can be believed
is learnt from what was accepted.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

MEMORY = 0.95
"""How much of what is known after a step is kept in the next."""
TRUST = 0.99
"""The same for how far the drafter is believed: what is accepted in one step says little."""
STRIDE = 1.5
"""How much longer or shorter than known one step may count: a pause of the host is no property of a width."""
FORGET = 0.999
"""How much of the other widths' ratios is kept after each step, so that what was slow is tried again."""

Point = tuple[int, int, int]


@dataclass(frozen=True)
class CostModel:
    """Milliseconds of a step by (requests, width, context), measured at start-up for two contexts or more."""

    points: Mapping[Point, float]

    @cached_property
    def _sizes(self) -> list[int]:
        return sorted({size for size, _, _ in self.points})

    @cached_property
    def _lines(self) -> dict[tuple[int, int], tuple[float, float, float]]:
        """Of each (size, width): the nearest context, the time there, and the time for each token more."""
        ends = {
            (size, width): sorted(c for s, w, c in self.points if (s, w) == (size, width))
            for size, width, _ in self.points
        }
        lines: dict[tuple[int, int], tuple[float, float, float]] = {}
        for (size, width), contexts in ends.items():
            near, far = contexts[0], contexts[-1]
            rise = self.points[size, width, far] - self.points[size, width, near]
            lines[size, width] = (near, self.points[size, width, near], rise / max(1, far - near))
        return lines

    def size(self, requests: int) -> int:
        """The next larger number of requests that was measured, or the largest."""
        return self._sizes[min(bisect_left(self._sizes, requests), len(self._sizes) - 1)]

    def step_ms(self, requests: int, width: int, context: float) -> float:
        """For `size(requests)`, and in a straight line over the context."""
        near, ms, slope = self._lines[self.size(requests), width]
        return ms + slope * max(0.0, context - near)

    def as_json(self) -> list[dict[str, float]]:
        return [
            {"requests": size, "width": width, "context": context, "ms": round(ms, 4)}
            for (size, width, context), ms in sorted(self.points.items())
        ]


class WidthPolicy:
    """Chooses among `widths` (ascending). One instance a worker, fed after each step."""

    def __init__(self, widths: Sequence[int], cost: CostModel) -> None:
        self._widths = list(widths)
        self._cost = cost
        self._expected = [1.0] * len(widths)
        self._promised = self._kept = 1e-9
        self._ratios: dict[int, list[float]] = {}

    @property
    def belief(self) -> float:
        """Accepted drafts for each one that the drafter's probabilities promised."""
        return min(self._kept / self._promised, 2.0) if self._promised > 1e-6 else 1.0

    def choose(self, requests: int, context: float) -> int:
        """Index of the width for the next step."""
        rates = [self._rate(index, requests, context) for index in range(len(self._widths))]
        return max(range(len(rates)), key=rates.__getitem__)

    def _rate(self, index: int, requests: int, context: float) -> float:
        tokens = 1 + self.belief * (self._expected[index] - 1)
        return tokens / (self._known(requests)[index] * self._cost.step_ms(requests, self._widths[index], context))

    def _known(self, requests: int) -> list[float]:
        """Of each width at so many requests: what a step took while serving, in terms of what start-up measured."""
        return self._ratios.setdefault(self._cost.size(requests), [1.0] * len(self._widths))

    def learn(self, index: int, expected: Sequence[float], accepted: float) -> None:
        """After a step at widths[index]: tokens expected at each width, and drafts accepted, both per request."""
        self._expected = [MEMORY * old + (1 - MEMORY) * new for old, new in zip(self._expected, expected, strict=True)]
        self._promised = TRUST * self._promised + (expected[index] - 1)
        self._kept = TRUST * self._kept + accepted

    def timed(self, index: int, requests: int, context: float, step_ms: float) -> None:
        """The time from one step to the next: the GPU's, or the host's where the GPU waits for it. Each width is
        corrected by itself, so a host that is slower than every width makes the widest one free.
        """
        known, cost = self._known(requests), self._cost.step_ms(requests, self._widths[index], context)
        before = known[index]
        now = min(max(step_ms / cost, before / STRIDE), before * STRIDE)
        known[:] = [1 + FORGET * (other - 1) for other in known]
        known[index] = MEMORY * before + (1 - MEMORY) * now
