"""What the requests of one trial share, such as the host's speed while it ran, in the intervals of one arm's numbers.

Resampling an arm's prompts cannot see it: on a host whose speed changes by the minute a step of one arm took 4.5 to
7.8 ms in three trials (ddtree-31 at 4 at once, sglang-sweep-five-h200.json), and the interval of its tok/s from prompts
alone was 2,589 to 2,825. It is estimated as the verdict's is (`statistics.trial_noise`), over all arms that were
measured. What moves all arms of a block alike is not in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats

from engines.base import Arm
from orchestrator.records import Interval
from orchestrator.selection import measurements
from orchestrator.statistics import TrialNoise, shared_variance, trial_noise

_LEAST = 2
"""Fewer arms or blocks cannot tell what a trial's requests share."""


def noise_of(measured: pd.DataFrame, arms: Sequence[Arm]) -> TrialNoise | None:
    """Of one workload point's requests (metrics.measure), from the arms that ran in most blocks and the prompts that
    all of those measured; None where they cannot tell: it takes two arms and two blocks.
    """
    blocks_of = measured[measured["step"] > 0].groupby("arm")["block"].nunique()
    whole = [arm for arm in arms if blocks_of.get(arm.name, 0) == blocks_of.max()]
    if len(whole) < _LEAST:
        return None
    found = measurements(measured, whole)
    if len(np.unique(found.blocks)) < _LEAST:
        return None
    return trial_noise(np.log(found.step), found.blocks)


def widened(found: Interval, blocks: pd.Series[int], noise: TrialNoise | None, confidence: float) -> Interval:
    """`found`, the interval of a time or a rate from the prompts of `blocks` (one entry a request), with the trials'
    noise: on the log scale the two errors are independent.
    """
    if noise is None or found.estimate <= 0:
        return found
    error = math.sqrt(shared_variance(np.asarray(blocks, dtype=np.int64), noise) / 2)  # of one arm, not of two
    reach = float(stats.t.ppf((1 + confidence) / 2, noise.degrees)) * error
    below = found.estimate / found.low if found.low > 0 else found.high / found.estimate
    down = math.hypot(math.log(below), reach)
    up = math.hypot(math.log(found.high / found.estimate), reach)
    return Interval(estimate=found.estimate, low=found.estimate * math.exp(-down), high=found.estimate * math.exp(up))
