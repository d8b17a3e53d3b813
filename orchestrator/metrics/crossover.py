"""Up to which concurrency one arm is faster than another: speculation than plain decoding, a tree than a chain."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats

from engines.base import Arm, Method
from orchestrator.metrics.requests import measure
from orchestrator.outputs import Crossing, Payoff
from orchestrator.records import Interval
from orchestrator.selection import measurements
from orchestrator.spec import SelectionSpec
from orchestrator.statistics import Bootstrap, Estimate, Floats, paired_estimate, trial_noise

_DRAWS = 4000


def crossings(requests: pd.DataFrame, arms: Sequence[Arm], rule: SelectionSpec) -> list[Crossing]:
    """Every speculative arm against plain decoding of its engine, and every tree against the engine's linear drafts;
    where both were measured at two or more concurrencies."""
    if requests.empty:
        return []
    measured = measure(requests)
    found = []
    for arm, against in _pairs(arms):
        told = [(int(at), _gain(measured, arm, against, at, rule)) for at in sorted(set(measured["concurrency"]))]
        points = [(at, gain) for at, gain in told if gain is not None]
        if len(points) > 1:
            levels, gains = zip(*points, strict=True)
            rng = np.random.default_rng([rule.seed, *f"{arm.name}/{against.name}".encode()])
            found.append(crossing(arm.name, against.name, levels, gains, rule.confidence, rng))
    return found


def crossing(
    arm: str,
    against: str,
    levels: Sequence[int],
    gains: Sequence[Estimate],
    confidence: float,
    rng: np.random.Generator,
) -> Crossing:
    """Where the log speed-up, linear between the logs of the levels, first falls to 0.

    Its interval is that of normal draws of the log speed-ups with the errors of `gains`.
    """
    at = np.log(np.array(levels, dtype=float))
    means = np.array([gain.mean for gain in gains])
    quantile = float(stats.norm.ppf((1 + confidence) / 2))
    errors = np.array([(gain.high - gain.low) / (2 * quantile) for gain in gains])
    draws = means + errors * rng.standard_normal((_DRAWS, len(means)))
    crossed = _first_fall(at, draws)
    payoff = _payoff(at, means, crossed, confidence)
    where = None
    if payoff is Payoff.CROSSES:
        tail = (1 - confidence) / 2
        low, high = np.quantile(crossed, [tail, 1 - tail])
        middle = float(_first_fall(at, means[None])[0])
        where = Interval(estimate=math.exp(middle), low=math.exp(min(low, middle)), high=math.exp(max(high, middle)))
    return Crossing(
        arm=arm,
        against=against,
        payoff=payoff,
        concurrency=where,
        measured_from=levels[0],
        measured_to=levels[-1],
        sure_to=_sure_to(levels, draws, confidence),
    )


def _sure_to(levels: Sequence[int], draws: Floats, confidence: float) -> int | None:
    """The last level up to which all gains are above 0 in a share of the draws of at least `confidence`."""
    shares = (np.logical_and.accumulate(draws > 0, axis=1)).mean(axis=0)
    return max((level for level, share in zip(levels, shares, strict=True) if share >= confidence), default=None)


def _payoff(at: Floats, means: Floats, crossed: Floats, confidence: float) -> Payoff:
    if float((crossed >= at[-1]).mean()) >= confidence:
        return Payoff.THROUGHOUT
    if float((crossed <= at[0]).mean()) >= confidence:
        return Payoff.NEVER
    inside = at[0] < _first_fall(at, means[None])[0] < at[-1]
    return Payoff.CROSSES if inside else Payoff.UNDECIDED


def _first_fall(at: Floats, gains: Floats) -> Floats:
    """Of each row: the first x where the line falls to 0. The first level where it starts there, the last where it
    never does."""
    below = gains <= 0
    end = np.maximum(below.argmax(axis=1), 1)
    rows = np.arange(len(gains))
    before, after = gains[rows, end - 1], gains[rows, end]
    share = before / np.where(before == after, 1.0, before - after)
    inside = at[end - 1] + share * (at[end] - at[end - 1])
    return np.asarray(np.where(below[:, 0], at[0], np.where(below.any(axis=1), inside, at[-1])))


def _pairs(arms: Sequence[Arm]) -> list[tuple[Arm, Arm]]:
    pairs = []
    for arm in arms:
        own = [other for other in arms if other.engine == arm.engine]
        plain = [other for other in own if other.method is Method.AUTOREGRESSIVE and arm.speculative]
        linear = [other for other in own if other.method is Method.DFLASH and arm.method is Method.DDTREE]
        pairs += [(arm, against) for against in (*plain[:1], *linear[:1])]
    return pairs


def _gain(measured: pd.DataFrame, arm: Arm, against: Arm, concurrency: int, rule: SelectionSpec) -> Estimate | None:
    """The paired log speed-up at one concurrency, over all prompts; None where too little was measured."""
    found = measurements(measured[measured["concurrency"] == concurrency], (against, arm))
    if len(np.unique(found.blocks)) < 2:
        return None
    bootstrap = Bootstrap(rule.confidence, rule.resamples, rule.seed)
    stream = bootstrap.stream("crossing", str(concurrency), arm.name, against.name)
    noise = trial_noise(np.log(found.step), found.blocks)
    return paired_estimate(found.log_ratios(0, 1), found.blocks, noise, bootstrap, stream)
