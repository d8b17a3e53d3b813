"""The automatic policy at work: which lane each step takes, and what is learnt once a step is over."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

from ddtree.sglang.policy import WidthPolicy
from ddtree.sglang.probe import RING, Glance, Probe


@dataclass(frozen=True)
class _Step:
    index: int
    requests: int
    context: float


class Chooser:
    """Told of every launch and of every result, in their order.

    The time from one launch to the next is that of the step whose result came in between, the host's part of it
    included: the step before the last where SGLang overlaps scheduling, else the last.
    """

    def __init__(self, policy: WidthPolicy, probe: Probe, clock: Callable[[], float] = perf_counter) -> None:
        self._policy = policy
        self._probe = probe
        self._clock = clock
        self._launched: float | None = None
        self._over: list[_Step] = []
        self._running: deque[tuple[_Step, Glance]] = deque()
        self._chosen = _Step(0, 0, 0.0)

    def interrupt(self) -> None:
        """Something else than a decode step is launched, a prefill mostly: the time up to the next launch is no step's,
        since it holds the host's part of a prefill. The time up to now is one's, as between two steps, unless none runs
        any more: then the server may have been idle.
        """
        if self._running:
            self._credit(self._clock())
        self._launched = None

    def choose(self, requests: int, context: float) -> int:
        """Index of the lane for the step that is launched now."""
        now = self._clock()
        self._credit(now)
        self._over.clear()
        self._launched = now
        self._chosen = _Step(self._policy.choose(requests, context), requests, context)
        return self._chosen.index

    def _credit(self, now: float) -> None:
        """The time since the last launch, to the step whose result came in it, if one's did."""
        if self._launched is not None and len(self._over) == 1:
            (step,) = self._over
            self._policy.timed(step.index, step.requests, step.context, 1000 * (now - self._launched))

    def look(self) -> None:
        """Once the trees of the step are launched: have what the drafter expects of each width brought to the host."""
        self._running.append((self._chosen, self._probe.glance(self._chosen.requests)))
        if len(self._running) > RING:  # its numbers are written over by now
            self._running.popleft()

    def learn(self, accepted: Sequence[int]) -> None:
        """The result of the oldest step that is not over: drafts accepted of each of its requests."""
        if self._running and accepted:
            step, glance = self._running.popleft()
            self._policy.learn(step.index, glance.mean(), sum(accepted) / len(accepted))
            self._over.append(step)
