"""Choose an arm on one half of the prompts, and judge it against the baseline on the other.

The halves are halves of the *blocks*: a trial's requests share the machine's state, so two halves of one trial are
not independent, and choosing among twelve equal arms on one of them flatters the winner on the other (by 0.5 % at 1 %
of shared noise). Blocks are dealt balanced over tasks; the split keeps that balance as far as the blocks allow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from engines.base import Arm, Method
from orchestrator.records import Comparison
from orchestrator.spec import SelectionSpec
from orchestrator.statistics import Bootstrap, Estimate, Floats, Ints, TrialNoise, holm, paired_estimate

_SIMPLEST_FIRST = (Method.AUTOREGRESSIVE, Method.NGRAM, Method.DFLASH, Method.EAGLE3, Method.DDTREE)

_SPLITS = 200
"""Random halvings tried for the most even share of tasks."""


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

    def log_ratios(self, baseline: int, arm: int) -> Floats:
        """Per prompt: log of the baseline's time per token over the arm's. Above 0 where the arm is faster."""
        times = np.log(self.decode / self.tokens)
        return times[:, baseline] - times[:, arm]

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


def split(blocks: Ints, tasks: NDArray[np.str_], seed: int) -> NDArray[np.bool_]:
    """Which prompts choose (True); the others report. Half of the blocks, the smaller half when they are odd.

    Of 200 random halvings the one whose halves have the most even shares of the tasks; the first drawn among equals.
    """
    labels, index = np.unique(blocks, return_inverse=True)
    names, task = np.unique(tasks, return_inverse=True)
    counts = np.zeros((len(labels), len(names)))
    np.add.at(counts, (index, task), 1)
    draw = np.random.default_rng(seed)
    halvings = draw.permuted(np.tile(np.arange(len(labels)) < len(labels) // 2, (_SPLITS, 1)), axis=1)
    uneven = np.abs(_shares(halvings @ counts) - _shares(~halvings @ counts)).sum(axis=1)
    return np.asarray(halvings[int(uneven.round(9).argmin())][index])


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


def _shares(counts: Floats) -> Floats:
    """Each row as shares of its sum; a row of nothing stays nothing."""
    return np.asarray(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1))
