"""What the requests of one trial share, such as the host's speed while it ran, in the intervals of one arm's numbers.

Resampling an arm's prompts cannot see it: on a host whose speed changes by the minute a step of one arm took 4.5 to
7.8 ms in three trials (ddtree-31 at 4 at once, sglang-sweep-h200.json), and the interval of its tok/s from prompts
alone was 2,589 to 2,825. It is estimated as the verdict's is (`statistics.trial_noise`), over all arms that were
measured. What moves all arms of a block alike is not in it.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from scipy import stats

from orchestrator.records import Interval
from orchestrator.statistics import TrialNoise, trial_noise

_LEAST = 2
"""Fewer arms or blocks cannot tell what a trial's requests share."""


def noise_of(measured: pd.DataFrame) -> TrialNoise | None:
    """Of one workload point's requests (metrics.measure), from the arms that ran in most blocks and the prompts that
    all of those measured; None where they cannot tell: it takes two arms and two blocks.
    """
    timed = measured[measured["step"] > 0]
    blocks_of = timed.groupby("arm")["block"].nunique()
    whole = timed[timed["arm"].isin(blocks_of.index[blocks_of == blocks_of.max()])]
    wide = whole.groupby(["prompt_id", "arm"])["step"].mean().unstack().dropna()
    blocks = measured.drop_duplicates("prompt_id").set_index("prompt_id")["block"].loc[wide.index]
    if wide.shape[1] < _LEAST or blocks.nunique() < _LEAST:
        return None
    return trial_noise(np.log(wide.to_numpy(dtype=float)), blocks.to_numpy(dtype=np.int64))


def widened(found: Interval, blocks: pd.Series[int], noise: TrialNoise | None, confidence: float) -> Interval:
    """`found`, the interval of a time or a rate from the prompts of `blocks` (one entry a request), with the trials'
    noise: on the log scale the two errors are independent.
    """
    if noise is None or found.estimate <= 0:
        return found
    shares = blocks.value_counts(normalize=True).to_numpy()
    error = math.sqrt(noise.variance * float((shares**2).sum()))
    reach = float(stats.t.ppf((1 + confidence) / 2, noise.degrees)) * error
    below = found.estimate / found.low if found.low > 0 else found.high / found.estimate
    down = math.hypot(math.log(below), reach)
    up = math.hypot(math.log(found.high / found.estimate), reach)
    return Interval(estimate=found.estimate, low=found.estimate * math.exp(-down), high=found.estimate * math.exp(up))
