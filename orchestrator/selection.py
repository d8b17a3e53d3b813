"""Choose an arm on one half of the prompts, and judge it against the baseline on the other.

The halves are halves of the *blocks*: a trial's requests share the machine's state, so two halves of one trial are
not independent, and choosing among twelve equal arms on one of them flatters the winner on the other (by 0.5 % at 1 %
of shared noise). Whatever is decided on the way (`stopping`) looks at the choosing half alone, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from engines.base import Arm, Method
from orchestrator.records import Comparison
from orchestrator.spec import SelectionSpec
from orchestrator.statistics import (
    Bootstrap,
    Estimate,
    Floats,
    Ints,
    TrialNoise,
    holm,
    paired_estimate,
    shared_variance,
)

_SIMPLEST_FIRST = (Method.AUTOREGRESSIVE, Method.NGRAM, Method.DFLASH, Method.EAGLE3, Method.DDTREE)


@dataclass(frozen=True)
class Measurements:
    """Complete measurements at one workload point: every prompt in every arm.

    `decode` seconds, `tokens` and `step` (seconds a verify step) are prompts x arms; `blocks` and `tasks` are the
    prompts'.
    """

    arms: tuple[Arm, ...]
    blocks: Ints
    tasks: NDArray[np.str_]
    decode: Floats
    tokens: Floats
    step: Floats

    def log_times(self) -> Floats:
        """Log of the seconds a token, prompts x arms."""
        return np.asarray(np.log(self.decode / self.tokens))

    def log_ratios(self, baseline: int, arm: int) -> Floats:
        """Per prompt: log of the baseline's time per token over the arm's. Above 0 where the arm is faster."""
        times = self.log_times()
        return np.asarray(times[:, baseline] - times[:, arm])

    def shared(self, noise: TrialNoise) -> float:
        """Variance that the trials' noise gives to the mean log ratio of two arms."""
        return shared_variance(self.blocks, noise)

    def take(self, rows: NDArray[np.bool_]) -> Measurements:
        """The prompts of `rows` alone."""
        parts = (self.blocks[rows], self.tasks[rows], self.decode[rows], self.tokens[rows], self.step[rows])
        return Measurements(self.arms, *parts)


def measurements(measured: pd.DataFrame, arms: Sequence[Arm]) -> Measurements:
    """From one point's requests (metrics.measure). A prompt without a TPOT in one of the arms is left out of all."""
    names = [arm.name for arm in arms]
    own = measured[measured["arm"].isin(names)]
    wide = own.pivot(index="prompt_id", columns="arm", values=["decode", "decode_tokens", "step"])
    wide = wide.reindex(columns=pd.MultiIndex.from_product([["decode", "decode_tokens", "step"], names]))
    wide = wide.where(wide > 0).dropna()
    prompts = own.drop_duplicates("prompt_id").set_index("prompt_id").loc[wide.index]
    return Measurements(
        arms=tuple(arms),
        blocks=prompts["block"].to_numpy(dtype=np.int64),
        tasks=prompts["task"].to_numpy(dtype=np.str_),
        decode=wide["decode"].to_numpy(dtype=float),
        tokens=wide["decode_tokens"].to_numpy(dtype=float),
        step=wide["step"].to_numpy(dtype=float),
    )


def split(blocks: Ints, seed: int) -> NDArray[np.bool_]:
    """Which prompts choose (True); the others report.

    Blocks 2i and 2i + 1 are a pair, of which a coin says which one chooses; a block without its partner reports. So a
    block stays in its half when blocks are added, and the halves share the tasks as evenly as neighbours do.
    """
    labels = {int(label) for label in np.unique(blocks)}
    choosing = [label for label in labels if label ^ 1 in labels and label & 1 == _coin(seed, label // 2)]
    return np.isin(blocks, choosing)


@lru_cache(maxsize=4096)
def _coin(seed: int, pair: int) -> int:
    return int(np.random.default_rng([seed, pair]).integers(2))


def choose(half: Measurements, baseline: int, noise: TrialNoise, rule: SelectionSpec) -> int:
    """Index of the arm, other than the baseline, to be judged.

    The fastest by geometric mean, or the simplest of those that come within the margin of it and cannot be told from
    it by their paired interval: less to go wrong, and room for more requests.
    """
    challengers = [index for index in range(len(half.arms)) if index != baseline]
    best = max(challengers, key=lambda index: float(half.log_ratios(baseline, index).mean()))
    bootstrap = _bootstrap(rule)

    def equal(index: int) -> bool:
        behind = half.log_ratios(index, best)
        if index == best or behind.mean() > math.log1p(rule.margin):
            return index == best
        stream = bootstrap.stream("choose", half.arms[index].name)
        return paired_estimate(behind, half.blocks, noise, bootstrap, stream).low <= 0

    return min((index for index in challengers if equal(index)), key=lambda index: simplicity(half.arms[index]))


def simplicity(arm: Arm) -> tuple[int, int, bool, str]:
    """Sort key: plain decoding first, then chains, then trees by budget; the name decides between equals."""
    return (_SIMPLEST_FIRST.index(arm.method), arm.budget or 0, arm.chain, arm.name)


def compare(
    found: Measurements,
    choosing: NDArray[np.bool_],
    baseline: int,
    noise: TrialNoise,
    concurrency: int,
    rule: SelectionSpec,
) -> list[Comparison]:
    """Every other arm against the baseline on the half that did not choose, p-values adjusted over all of them."""
    chosen, held = found.take(choosing), found.take(~choosing)
    bootstrap = _bootstrap(rule)
    others = [index for index in range(len(found.arms)) if index != baseline]
    estimates: list[Estimate] = []
    for index in others:
        stream = bootstrap.stream("compare", str(concurrency), found.arms[index].name)
        ratios = held.log_ratios(baseline, index)
        estimates.append(paired_estimate(ratios, held.blocks, noise, bootstrap, stream))
    adjusted = holm([estimate.p_value for estimate in estimates])
    return [
        Comparison(
            arm=found.arms[index].name,
            baseline=found.arms[baseline].name,
            concurrency=concurrency,
            prompts=len(held.blocks),
            speedup=estimate.ratio(),
            p_value=estimate.p_value,
            p_adjusted=p_adjusted,
            selection_speedup=math.exp(float(chosen.log_ratios(baseline, index).mean())),
            token_weighted_speedup=_token_weighted(held, baseline, index),
        )
        for index, estimate, p_adjusted in zip(others, estimates, adjusted, strict=True)
    ]


def _bootstrap(rule: SelectionSpec) -> Bootstrap:
    return Bootstrap(rule.confidence, rule.resamples, rule.seed)


def _token_weighted(half: Measurements, baseline: int, arm: int) -> float:
    pooled = half.decode.sum(axis=0) / half.tokens.sum(axis=0)
    return float(pooled[baseline] / pooled[arm])
