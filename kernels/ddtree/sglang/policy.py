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
"""Share of its weight that what is known keeps after another step."""
TRUST = 0.99
"""The same for how far the drafter is believed: what is accepted in one step says little."""
FADE = 0.99
"""The same for the times of a width after a step at another one: what was long ago is soon replaced."""
FALL = 1.5
"""Steps so many times shorter than known end all that was known: whatever held the server up is gone."""
TRIAL = 40
"""One step in so many is for a width that would be the best if it took what start-up measured."""

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


class Seen:
    """What steps of one batch size took while serving: of each width the ratio to what start-up measured."""

    def __init__(self, widths: int) -> None:
        self._since_trial = 0
        self._forget(widths)

    def _forget(self, widths: int) -> None:
        self.ratios, self._last = [1.0] * widths, [1.0] * widths
        self._weights = [0.0] * widths

    def add(self, index: int, ratio: float) -> None:
        """A step counts by the median of its time, the one before it and what is known: one pause of the host counts
        for nothing, and a host that is slow from the first step on is known after two.
        """
        now = sorted((ratio, self._last[index], self.ratios[index]))[1]
        if now < self.ratios[index] / FALL:
            self._forget(len(self.ratios))
            self.ratios[index] = now
        self.ratios[index] += (now - self.ratios[index]) / max(1.0, self._weights[index])
        self._last[index] = ratio
        now_weighs = 1 + MEMORY * self._weights[index]
        self._weights = [FADE * weight for weight in self._weights]
        self._weights[index] = now_weighs

    def times(self, measured: Sequence[float]) -> list[float]:
        """Milliseconds of each width. One that was not timed lately takes no less than a narrower one that was: where
        the host is slower than the GPU, one width shows it for all the wider ones.
        """
        times, least = [], 0.0
        for ratio, ms, weight in zip(self.ratios, measured, self._weights, strict=True):
            if weight >= 1:
                times.append(ratio * ms)
                least = max(least, ratio * ms)
            else:
                times.append(max(ratio * ms, least))
        return times

    def trial(self, hopes: Sequence[int]) -> int | None:
        """Now and then the one of these widths that is known least. Its step counts at once if it is short."""
        self._since_trial += bool(hopes)
        if self._since_trial < TRIAL:
            return None
        self._since_trial = 0
        index = min(hopes, key=self._weights.__getitem__)
        self._last[index] = 1.0
        return index


class WidthPolicy:
    """Chooses among `widths` (ascending). One instance a worker, fed after each step."""

    def __init__(self, widths: Sequence[int], cost: CostModel) -> None:
        self._widths = list(widths)
        self._cost = cost
        self._expected = [1.0] * len(widths)
        self._promised = self._kept = 1e-9
        self._seen: dict[int, Seen] = {}

    @property
    def belief(self) -> float:
        """Accepted drafts for each one that the drafter's probabilities promised."""
        return min(self._kept / self._promised, 2.0) if self._promised > 1e-6 else 1.0

    def choose(self, requests: int, context: float) -> int:
        """Index of the width for the next step."""
        seen = self.seen(requests)
        measured = [self._cost.step_ms(requests, width, context) for width in self._widths]
        rates, hopes = self._rates(seen.times(measured)), self._rates(measured)
        best = max(range(len(rates)), key=rates.__getitem__)
        trial = seen.trial([index for index, hope in enumerate(hopes) if hope > rates[best] and index != best])
        return best if trial is None else trial

    def _rates(self, times: Sequence[float]) -> list[float]:
        """Tokens a millisecond of each width, a request."""
        return [(1 + self.belief * (e - 1)) / ms for e, ms in zip(self._expected, times, strict=True)]

    def seen(self, requests: int) -> Seen:
        """What is known of so many requests."""
        size = self._cost.size(requests)
        if size not in self._seen:
            self._seen[size] = Seen(len(self._widths))
        return self._seen[size]

    def learn(self, index: int, expected: Sequence[float], accepted: float) -> None:
        """After a step at widths[index]: tokens expected at each width, and drafts accepted, both per request."""
        self._expected = [MEMORY * old + (1 - MEMORY) * new for old, new in zip(self._expected, expected, strict=True)]
        self._promised = TRUST * self._promised + (expected[index] - 1)
        self._kept = TRUST * self._kept + accepted

    def timed(self, index: int, requests: int, context: float, step_ms: float) -> None:
        """The time from one step to the next: the GPU's, or the host's where the GPU waits for it."""
        self.seen(requests).add(index, step_ms / self._cost.step_ms(requests, self._widths[index], context))
