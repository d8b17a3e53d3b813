"""Paired statistics of log times: intervals, p-values and their adjustment. Arrays in, numbers out.

What varies. A prompt brings its content (acceptance differs by prompt) and is measured once in every arm, so arms are
compared within prompts and the prompt is the unit that is resampled. But the requests of one trial also share the
state of the machine while that trial ran (clocks, neighbours), which no resampling of prompts can see: with 3 % of it
an interval from prompts alone covers the truth half of the time. Blocks are too few (2 to 8) to be resampled, so the
shared part is estimated by analysis of variance (`trial_noise`) and enters as a second error with its own degrees of
freedom. benchmarks/statistics.py measures what comes of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.records import Interval

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CHUNK = 2_000_000
"""Most values of a resample held at once (16 MB)."""


@dataclass(frozen=True)
class Estimate:
    """A mean with its interval, and the two-sided p-value of "the mean is 0" that agrees with the interval."""

    mean: float
    low: float
    high: float
    p_value: float

    def ratio(self) -> Interval:
        """The estimate of a mean log ratio, as a ratio."""
        return Interval(estimate=math.exp(self.mean), low=math.exp(self.low), high=math.exp(self.high))


@dataclass(frozen=True)
class TrialNoise:
    """Variance of the log time that all requests of one trial share, beyond their arm and their block."""

    variance: float
    degrees: int


@dataclass(frozen=True)
class Bootstrap:
    """How intervals are made: `confidence` in (0, 1), the number of resamples, the seed."""

    confidence: float
    resamples: int
    seed: int

    def stream(self, *names: str) -> np.random.Generator:
        """Random numbers that depend on the seed and the names alone, not on the order of calls."""
        return np.random.default_rng([self.seed, *"/".join(names).encode()])


def trial_noise(log_times: Floats, blocks: Ints) -> TrialNoise:
    """Arm x block interaction of a two-way layout: `log_times` is prompts x arms, `blocks` the prompts' block.

    Needs 2 arms and 2 blocks. Give it times that content hardly moves (seconds a step, not a token): their residual
    is small, and the estimate as sharp as (arms - 1)(blocks - 1) degrees of freedom allow.
    """
    labels, index, sizes = np.unique(blocks, return_inverse=True, return_counts=True)
    prompts, arms = log_times.shape
    if arms < 2 or len(labels) < 2:
        raise ValueError(f"trial noise needs 2 arms and 2 blocks, not {arms} and {len(labels)}")
    cells = np.array([log_times[index == i].mean(axis=0) for i in range(len(labels))])
    interaction = cells - cells.mean(axis=1, keepdims=True) - cells.mean(axis=0) + cells.mean()
    within = log_times - cells[index]
    within = within - within.mean(axis=1, keepdims=True)
    degrees = (arms - 1) * (len(labels) - 1)
    between = float((interaction**2).sum()) / degrees
    if prompts == len(labels):  # one prompt a block: nothing separates the two, so all of it counts as shared
        return TrialNoise(between, degrees)
    residual = float((within**2).sum()) / ((arms - 1) * (prompts - len(labels)))
    return TrialNoise(max(0.0, between - residual * float(np.mean(1 / sizes))), degrees)


def paired_estimate(
    log_ratios: Floats, blocks: Ints, noise: TrialNoise, bootstrap: Bootstrap, rng: np.random.Generator
) -> Estimate:
    """Mean of per-prompt log ratios of two arms, by percentile-t over prompts and a t for the trials' shared noise.

    The two errors are independent, so their draws are added (Behrens-Fisher): slightly wide, never narrow.
    """
    errors = bootstrap_errors(log_ratios, bootstrap.resamples, rng)
    errors = errors + math.sqrt(shared_variance(blocks, noise)) * rng.standard_t(noise.degrees, bootstrap.resamples)
    return _estimate(float(log_ratios.mean()), errors, bootstrap.confidence)


def shared_variance(blocks: Ints, noise: TrialNoise) -> float:
    """What the trials' noise adds to the variance of a mean over prompts of two arms' log ratios."""
    _, sizes = np.unique(blocks, return_counts=True)
    return 2 * noise.variance * float(((sizes / sizes.sum()) ** 2).sum())


def mean_interval(values: Floats, bootstrap: Bootstrap, rng: np.random.Generator) -> Interval:
    """Mean of one value a prompt, percentile-t over prompts. Covers the draw of prompts, not the machine's drift."""
    errors = bootstrap_errors(values, bootstrap.resamples, rng)
    found = _estimate(float(values.mean()), errors, bootstrap.confidence)
    return Interval(estimate=found.mean, low=found.low, high=found.high)


def ratio_interval(
    numerators: Floats, denominators: Floats, bootstrap: Bootstrap, rng: np.random.Generator
) -> Interval:
    """Ratio of sums over prompts (pooled, so long prompts count more); on the log scale, by linear influence."""
    ratio = float(numerators.sum() / denominators.sum())
    if ratio == 0.0:
        return Interval(estimate=0.0, low=0.0, high=0.0)
    influence = (numerators / ratio - denominators) / denominators.mean()
    errors = bootstrap_errors(influence, bootstrap.resamples, rng)
    return _estimate(math.log(ratio), errors, bootstrap.confidence).ratio()


def bootstrap_errors(values: Floats, resamples: int, rng: np.random.Generator) -> Floats:
    """Draws of (mean - truth) by the percentile-t method (Efron and Tibshirani 1993, 12.5). Needs 2 values.

    A resample of one value repeated has no spread: its standard error is held above 1/n of the sample's.
    """
    n = len(values)
    if n < 2:
        raise ValueError("an interval needs two values")
    error = float(values.std(ddof=1)) / math.sqrt(n)
    if error == 0.0:
        return np.zeros(resamples)
    parts = []
    for start in range(0, resamples, max(1, _CHUNK // n)):
        rows = min(max(1, _CHUNK // n), resamples - start)
        drawn = (values - values.mean())[rng.integers(0, n, (rows, n))]
        spread = drawn.std(axis=1, ddof=1) / math.sqrt(n)
        parts.append(drawn.mean(axis=1) / np.maximum(spread, error / n))
    return error * np.concatenate(parts)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment (1979): compare each with alpha to keep the family's error at alpha."""
    order = np.argsort(p_values, kind="stable")
    adjusted = [0.0] * len(p_values)
    running = 0.0
    for rank, position in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[position]))
        adjusted[position] = running
    return adjusted


def _estimate(mean: float, errors: Floats, confidence: float) -> Estimate:
    tail = (1 - confidence) / 2
    upper, lower = np.quantile(errors, [1 - tail, tail])
    beyond = min(int((errors >= mean).sum()), int((errors <= mean).sum()))
    p_value = min(1.0, 2 * (beyond + 1) / (len(errors) + 1))
    return Estimate(mean, mean - float(upper), mean - float(lower), p_value)
