"""Whether a server's stage times and its answers' times tell of the same steps. Pure.

One request at a time, TPOT is the time of a step over the tokens that it gives out: (draft + build + verify + commit +
host) / acceptance length. Where the two part, the client, the counters or the stage clocks are wrong. Both sides are
summed here over the same steps, so the acceptance length cancels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from engines.base import StageTimes
from orchestrator.answer import Answer

DELIVERY_S = 0.002
"""How much longer a request's first chunk, which comes with the answer's head, may be on its way than the last one."""

_PARTS = ("draft", "build", "verify", "commit", "host")
_SURE = 0.99


@dataclass(frozen=True)
class Balance:
    """Seconds by the answers and by the stages; `spread`: half of the 99 % interval of what `measured` is.

    The spread follows from how unevenly the requests share the time, by their steps. It holds what real differences
    between their steps add, so it is too wide rather than too narrow.
    """

    measured: float
    told: float
    spread: float
    requests: int

    @property
    def error(self) -> float:
        return self.measured / self.told - 1

    def clear_of(self, limit: float) -> bool:
        """Whether the two differ by more than `limit`, relative, beyond what deliveries and chance explain."""
        explained = limit * self.told + DELIVERY_S * self.requests + self.spread
        return abs(self.measured - self.told) > explained


def balance(answers: Sequence[Answer], stages: StageTimes) -> Balance | None:
    """None where fewer than two requests went on after their first chunk: one alone says nothing of chance."""
    timed = [answer for answer in answers if answer.output_tokens > answer.first_chunk_tokens]
    told = sum(getattr(stages, part) for part in _PARTS)
    if len(timed) < 2 or told <= 0:
        return None
    took = np.array([answer.last - answer.first for answer in timed])
    steps = np.array([_steps(answer) for answer in timed], dtype=float)
    uneven = took - steps * took.sum() / steps.sum()
    count = len(timed)
    deviation = math.sqrt(count / (count - 1) * float(uneven @ uneven))
    quantile = float(stats.t.ppf((1 + _SURE) / 2, count - 1))
    return Balance(float(took.sum()), told, quantile * deviation, count)


def disagreement(answers: Sequence[Answer], stages: StageTimes, limit: float) -> str:
    """Why the times cannot be believed, in one line with the parts of a step; empty where they agree."""
    found = balance(answers, stages)
    if found is None or not found.clear_of(limit):
        return ""
    steps = max(stages.steps, 1)
    parts = ", ".join(f"{part} {1e3 * took / steps:.1f}" for part in _PARTS if (took := getattr(stages, part)))
    off = f"{100 * found.error:+.0f} % (+- {100 * found.spread / found.told:.0f}), allowed {100 * limit:g} %"
    by_answers, by_stages = 1e3 * found.measured / steps, 1e3 * found.told / steps
    return (
        f"a step took {by_answers:.1f} ms by the answers and {by_stages:.1f} ms by the server's stages ({parts}): {off}"
    )


def _steps(answer: Answer) -> int:
    """Decode steps of a request: its verify steps, or where it does not tell, as many as it has tokens after the first
    chunk."""
    if answer.counters is not None and answer.counters.verify_steps:
        return answer.counters.verify_steps
    return answer.output_tokens - answer.first_chunk_tokens
