"""Verify time against the width of the tree, and the cliffs in it."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from scipy import stats

from engines.base import Arm
from orchestrator.metrics.summary import STAGES
from orchestrator.outputs import Cliff, CurvePoint
from orchestrator.records import Interval, TrialRecord, TrialState

CLIFF = 0.1
"""A step that costs this much more than the curve's slope leads to, relative to the time before it, is a cliff."""

_FEWEST = 4
"""Below four widths there is no slope that a single step could part from."""


def verify_curve(trials: Sequence[TrialRecord], arms: Sequence[Arm], confidence: float) -> list[CurvePoint]:
    """A point an arm and concurrency whose valid trials tell stage times; by engine, concurrency and width."""
    grouped: dict[tuple[str, int], list[TrialRecord]] = defaultdict(list)
    for trial in trials:
        if trial.state is TrialState.VALID and trial.stages and trial.stages["steps"]:
            grouped[trial.arm, trial.concurrency].append(trial)
    known = {arm.name: arm for arm in arms}
    points = [_point(known[name], at, own, confidence) for (name, at), own in grouped.items() if name in known]
    return sorted(points, key=lambda point: (point.engine, point.concurrency, point.width, point.arm))


def cliffs(curve: Sequence[CurvePoint]) -> list[Cliff]:
    """Where the time jumps between two neighbouring widths of one engine at one concurrency.

    The slope expected is Theil and Sen's (the median over all pairs), which single cliffs hardly move. A jump must
    exceed the half-widths of both intervals as well.
    """
    found = []
    groups = itertools.groupby(curve, key=lambda point: (point.engine, point.concurrency))
    for _, members in groups:
        line = _by_width(list(members))
        if len(line) >= _FEWEST:
            slope = max(0.0, _theil_sen(line))
            found += [cliff for pair in itertools.pairwise(line) if (cliff := _cliff(*pair, slope))]
    return found


def _point(arm: Arm, concurrency: int, trials: Sequence[TrialRecord], confidence: float) -> CurvePoint:
    stages = [trial.stages for trial in trials if trial.stages]
    verify = np.array([1e3 * item["verify"] / item["steps"] for item in stages])
    step = [1e3 * sum(item[name] for name in STAGES) / item["steps"] for item in stages]
    width = _width(trials)
    return CurvePoint(
        arm=arm.name,
        engine=arm.engine,
        method=arm.method.value,
        concurrency=concurrency,
        width=width,
        packed=width * concurrency,
        verify_ms=_mean(verify, confidence),
        step_ms=float(np.mean(step)),
    )


def _width(trials: Sequence[TrialRecord]) -> int:
    """Tokens a request brings to a verify forward, by what was counted: a tree may be smaller than its budget."""
    steps = sum(int(str(trial.counters.get("verify_steps", 0))) for trial in trials)
    drafted = sum(int(str(trial.counters.get("drafted", 0))) for trial in trials)
    return 1 + round(drafted / steps) if steps else 1


def _mean(values: np.ndarray[tuple[int], np.dtype[np.float64]], confidence: float) -> Interval:
    """Over trials, by Student's t; of one trial nothing is known but the value."""
    mean, half = float(values.mean()), 0.0
    if len(values) > 1:
        quantile = float(stats.t.ppf((1 + confidence) / 2, len(values) - 1))
        half = quantile * float(values.std(ddof=1)) / math.sqrt(len(values))
    return Interval(estimate=mean, low=mean - half, high=mean + half)


def _by_width(points: Sequence[CurvePoint]) -> list[CurvePoint]:
    """One point a width, the cheapest: two methods may share one."""
    best: dict[int, CurvePoint] = {}
    for point in points:
        if point.packed not in best or point.verify_ms.estimate < best[point.packed].verify_ms.estimate:
            best[point.packed] = point
    return [best[packed] for packed in sorted(best)]


def _theil_sen(line: Sequence[CurvePoint]) -> float:
    slopes = [
        (b.verify_ms.estimate - a.verify_ms.estimate) / (b.packed - a.packed)
        for a, b in itertools.combinations(line, 2)
    ]
    return float(np.median(slopes))


def _cliff(a: CurvePoint, b: CurvePoint, slope: float) -> Cliff | None:
    before, at = a.verify_ms, b.verify_ms
    above = at.estimate - before.estimate - slope * (b.packed - a.packed)
    noise = (before.high - before.estimate) + (at.estimate - at.low)
    jump = above / before.estimate
    if jump < CLIFF or above <= noise:
        return None
    name = (
        f"{b.engine} at {b.concurrency}: verify cliff between {a.packed} and {b.packed} tokens, "
        f"{before.estimate:.2f} to {at.estimate:.2f} ms ({100 * jump:+.0f} % above the curve)"
    )
    return Cliff(
        engine=b.engine,
        concurrency=b.concurrency,
        before=a.packed,
        at=b.packed,
        before_ms=before.estimate,
        at_ms=at.estimate,
        jump=jump,
        name=name,
    )
