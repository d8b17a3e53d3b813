"""Whether a sweep needs more blocks, and which arms need no more: asked between two rounds, of the choosing half alone.

The half that reports has no part in it. So when the sweep stops, and which arms it went on with, are independent of
what that half shows, and its intervals, p-values and gain are those of a sweep whose size was fixed before: no error
rate is spent on the looks (Cox 1975 on splitting data; Stein 1945 on a size chosen by other data than the test's).
What a look does spend is written here: `ASSURANCE` for stopping, `DROP_ERROR` for arms that are given up.
benchmarks/statistics.py measures what comes of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from orchestrator.selection import Measurements, split
from orchestrator.spec import BlockSpec, SelectionSpec
from orchestrator.statistics import Floats, TrialNoise, trial_noise

ASSURANCE = 0.995
"""One-sided confidence of the bound from which an outcome counts as clear, at each look."""

CONFIRMATION = 0.95
"""Chance that the reporting half shows a winner where its true gain is only at that bound."""

DROP_ERROR = 0.05
"""Chance, over all looks together, that the fastest arm, or another within the margin of it, is given up."""

MIN_BLOCKS = 2
"""Fewest choosing blocks from which the trials' shared noise can be told."""


@dataclass(frozen=True)
class View:
    """What the choosing half shows. `half_width`: of the candidate's log speed-up, as the reporting half will have it.

    `dropped`: arm to reason. `stop`: why no more blocks are needed; empty when they are.
    """

    candidate: str | None
    half_width: float | None
    dropped: dict[str, str]
    stop: str


@dataclass(frozen=True)
class _Gains:
    """Log speed-ups of the arms (columns) against the baseline: means, and their errors with degrees of freedom."""

    mean: Floats
    error: Floats
    degrees: Floats

    def reach(self, confidence: float) -> Floats:
        """How far the one-sided bound of that confidence lies from the mean."""
        return np.asarray(stats.t.ppf(confidence, self.degrees) * self.error)


def look(found: Measurements, baseline: int, rule: SelectionSpec, blocks: BlockSpec) -> View:
    """Judge the blocks measured so far. `found` holds the arms still measured: the baseline and at least one other."""
    half = found.take(split(found.blocks, rule.seed))
    others = np.array([index for index in range(len(found.arms)) if index != baseline])
    if len(np.unique(half.blocks)) < MIN_BLOCKS:
        return View(None, None, {}, "")
    noise = trial_noise(np.log(half.step), half.blocks)
    gains = _gains(half, baseline, others, noise)
    width = gains.reach((1 + rule.confidence) / 2)
    best = int(gains.mean.argmax())
    candidate = found.arms[others[best]].name
    stop = _outcome(gains, best, width, rule, candidate) or _narrow(width[best], blocks)
    dropped = {} if stop else _hopeless(half, baseline, noise, rule, blocks.looks)
    if len(dropped) == len(others):  # all at once: nothing is left to add blocks for, and all can still be compared
        dropped, stop = {}, f"clear: every other arm is slower than {rule.baseline}"
    return View(candidate, float(width[best]), dropped, stop)


def _gains(half: Measurements, baseline: int, others: NDArray[np.int64], noise: TrialNoise) -> _Gains:
    """The error of the prompts and that of the trials together, degrees by Welch and Satterthwaite."""
    times = half.log_times()
    ratios = times[:, [baseline]] - times[:, others]
    prompts = ratios.var(axis=0, ddof=1) / len(ratios)
    trials = half.shared(noise)
    total = np.maximum(prompts + trials, np.finfo(float).tiny)
    degrees = total**2 / (prompts**2 / (len(ratios) - 1) + trials**2 / noise.degrees + np.finfo(float).tiny)
    return _Gains(ratios.mean(axis=0), np.sqrt(total), np.maximum(degrees, 1.0))


def _outcome(gains: _Gains, best: int, width: Floats, rule: SelectionSpec, candidate: str) -> str:
    """Whether the reporting half will surely find a winner, or surely none."""
    line, reach = math.log1p(rule.margin), gains.reach(ASSURANCE)
    low = float(gains.mean[best] - reach[best])
    if low - width[best] - gains.reach(CONFIRMATION)[best] > line:
        return f"clear: {candidate} is at least {100 * math.expm1(low):.0f} % faster"
    if float((gains.mean + reach).max()) < line:
        return f"clear: no arm is {100 * rule.margin:g} % faster than {rule.baseline}"
    return ""


def _narrow(width: float, blocks: BlockSpec) -> str:
    return f"narrow: the speed-up is known to +-{100 * width:.1f} %" if width <= blocks.half_width else ""


def _hopeless(half: Measurements, baseline: int, noise: TrialNoise, rule: SelectionSpec, looks: int) -> dict[str, str]:
    """Arms behind the leader by more than the margin, by a signed-rank test over prompts (Wilcoxon 1945).

    Prompts of one trial share its noise, which no test over prompts can see: the margin is widened by a bound on that
    noise, and each of the two has half of the error. An arm may be compared with any leader at any look, so the budget
    is divided by both.
    """
    times = half.log_times()
    leader = int(times.mean(axis=0).argmin())
    error = DROP_ERROR / (2 * looks * (len(half.arms) - 1))
    allowed = math.log1p(rule.margin) + float(stats.t.isf(error, noise.degrees)) * math.sqrt(half.shared(noise))
    behind = times - times[:, [leader]]
    doubtful = [i for i in np.flatnonzero(behind.mean(axis=0) > allowed) if i not in (baseline, leader)]
    if not doubtful:
        return {}
    p_values = stats.wilcoxon(behind[:, doubtful] - allowed, alternative="greater", method="asymptotic", axis=0).pvalue
    return {
        half.arms[arm].name: f"{100 * math.expm1(float(behind[:, arm].mean())):.0f} % slower than "
        f"{half.arms[leader].name} on {len(behind)} prompts"
        for arm, p_value in zip(doubtful, p_values, strict=True)
        if p_value <= error
    }
