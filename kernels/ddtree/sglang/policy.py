"""Which width to verify next: what a tree of each width should bring, by what a step with it costs.

Pure Python and host numbers; nothing here waits for the GPU. The drafter's own probabilities say how many tokens each
width would have brought (the sum of its nodes' path probabilities, DDTree's objective); how far they can be believed
is learnt from what was accepted.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

MEMORY = 0.95
"""How much of what is known after a step is kept in the next."""
SWITCH = 0.01
"""How much better another width must be for a change."""
HOST_BOUND = 1.15
"""A step that takes so much longer than the GPU needs was kept waiting by the host, or the cost model is wrong."""
FORGET = 0.999
"""How much of a width's slowness and of the shortest step is kept after each step, so that things are tried again."""

Point = tuple[int, int, int]


@dataclass(frozen=True)
class CostModel:
    """Milliseconds of a step by (requests, width, context), measured at start-up for two contexts or more."""

    points: Mapping[Point, float]

    def step_ms(self, requests: int, width: int, context: float) -> float:
        """For the next larger number of requests that was measured, and in a straight line over the context."""
        sizes = sorted({size for size, at, _ in self.points if at == width})
        size = sizes[min(bisect_left(sizes, requests), len(sizes) - 1)]
        line = sorted((c, ms) for (s, at, c), ms in self.points.items() if (s, at) == (size, width))
        (near, near_ms), (far, far_ms) = line[0], line[-1]
        slope = (far_ms - near_ms) / (far - near) if far > near else 0.0
        return near_ms + slope * max(0.0, context - near)

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
        self._host_ms = 0.0
        self._shortest = inf
        self._slower = [1.0] * len(widths)
        self._chosen = 0

    @property
    def belief(self) -> float:
        """Accepted drafts for each one that the drafter's probabilities promised."""
        return min(self._kept / self._promised, 2.0) if self._promised > 1e-6 else 1.0

    def choose(self, requests: int, context: float) -> int:
        """Index of the width for the next step."""
        rates = [self._rate(index, requests, context) for index in range(len(self._widths))]
        best = max(range(len(rates)), key=rates.__getitem__)
        if rates[best] > rates[self._chosen] * (1 + SWITCH):
            self._chosen = best
        return self._chosen

    def _rate(self, index: int, requests: int, context: float) -> float:
        tokens = 1 + self.belief * (self._expected[index] - 1)
        gpu_ms = self._slower[index] * self._cost.step_ms(requests, self._widths[index], context)
        return tokens / max(self._host_ms, gpu_ms)

    def learn(self, index: int, expected: Sequence[float], accepted: float) -> None:
        """After a step at widths[index]: tokens expected at each width, and drafts accepted, both per request."""
        self._expected = [MEMORY * old + (1 - MEMORY) * new for old, new in zip(self._expected, expected, strict=True)]
        self._promised = MEMORY * self._promised + (expected[index] - 1)
        self._kept = MEMORY * self._kept + accepted

    def timed(self, index: int, requests: int, context: float, step_ms: float) -> None:
        """The time from one step to the next: never less than the host needs, and its time where it is more than the
        GPU's. What is longer than both says that this width costs more than start-up measured (for sampled requests,
        say).
        """
        cost, slower = self._cost.step_ms(requests, self._widths[index], context), self._slower[index]
        self._slower = [1 + FORGET * (other - 1) for other in self._slower]
        self._shortest = min(self._shortest / FORGET, step_ms)
        if step_ms <= HOST_BOUND * slower * cost:
            self._host_ms = min(self._host_ms, step_ms)
        elif step_ms <= HOST_BOUND * self._shortest:
            self._host_ms = MEMORY * (self._host_ms or step_ms) + (1 - MEMORY) * step_ms
            return
        self._slower[index] = MEMORY * slower + (1 - MEMORY) * max(1.0, min(step_ms / cost, 2 * slower))
