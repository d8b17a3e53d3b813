import math

import numpy as np
import pytest

from engines.base import Arm, Method
from orchestrator.metrics import measure
from orchestrator.selection import Measurements, choose, compare, measurements, simplicity, split
from orchestrator.spec import SelectionSpec
from orchestrator.statistics import TrialNoise
from tests.orchestrator.sample import failed, frame, request

PLAIN = Arm("autoregressive", "reference", Method.AUTOREGRESSIVE)
CHAIN = Arm("dflash", "reference", Method.DFLASH)
TREE_7 = Arm("ddtree-7", "reference", Method.DDTREE, budget=7)
TREE_15 = Arm("ddtree-15", "reference", Method.DDTREE, budget=15)
ARMS = (TREE_15, CHAIN, PLAIN, TREE_7)
RULE = SelectionSpec(resamples=2000)
QUIET = TrialNoise(0.0, 9)


def table(gains: list[float], spread: float = 0.01, blocks: int = 4, prompts: int = 48, seed: int = 0) -> Measurements:
    """Prompts x ARMS with the given speed-ups over a 10 ms token, and independent noise."""
    draw = np.random.default_rng(seed)
    times = 0.01 / np.array(gains) * np.exp(draw.normal(0, spread, (prompts, len(gains))))
    tokens = np.full(times.shape, 100.0)
    tasks = np.array(["chat", "code", "maths", "rewriting"])[np.arange(prompts) // blocks % 4]
    return Measurements(ARMS[: len(gains)], np.arange(prompts) % blocks, tasks, times * tokens, tokens, times)


def test_simplest_first() -> None:
    forced = Arm("chain", "reference", Method.DDTREE, budget=7, chain=True)
    ordered = sorted([forced, *ARMS], key=simplicity)
    assert [arm.name for arm in ordered] == ["autoregressive", "dflash", "ddtree-7", "chain", "ddtree-15"]


@pytest.mark.parametrize(("blocks", "choosing"), [(2, 1), (4, 2), (5, 2), (7, 3)])
def test_split_is_by_whole_blocks_one_of_each_pair(blocks: int, choosing: int) -> None:
    labels = np.arange(8 * blocks) % blocks
    chosen = split(labels, seed=1)
    assert len({label // 2 for label in labels[chosen]}) == len(set(labels[chosen])) == choosing
    assert not set(labels[chosen]) & set(labels[~chosen])


def test_a_block_keeps_its_half_when_blocks_are_added() -> None:
    for seed in range(10):
        four, ten = (np.arange(count) for count in (4, 10))
        assert split(four, seed).tolist() == split(ten, seed)[:4].tolist()


def test_split_depends_on_the_seed_alone() -> None:
    blocks = table([1.0, 1.0]).blocks
    splits = [split(blocks, seed).tolist() for seed in range(20)]
    assert splits == [split(blocks, seed).tolist() for seed in range(20)]
    assert len({tuple(s) for s in splits}) > 1


def test_the_fastest_is_put_forward() -> None:
    assert ARMS[choose(table([1.2, 1.4, 1.0, 1.3]), 2, QUIET, RULE)] is CHAIN
    assert ARMS[choose(table([1.5, 1.4, 1.0, 1.3]), 2, QUIET, RULE)] is TREE_15


def test_the_simplest_of_equals_is_put_forward() -> None:
    """Budgets 7 and 15 equally fast: the smaller one."""
    assert ARMS[choose(table([1.4, 1.1, 1.0, 1.4], spread=0.03), 2, QUIET, RULE)] is TREE_7


def test_slower_by_more_than_the_margin_is_no_equal_however_noisy() -> None:
    noisy = TrialNoise(0.01, 9)
    assert ARMS[choose(table([1.4, 1.1, 1.0, 1.3]), 2, noisy, RULE)] is TREE_15


def test_surely_slower_within_the_margin_is_no_equal() -> None:
    assert ARMS[choose(table([1.4, 1.1, 1.0, 1.385], spread=0.001), 2, QUIET, RULE)] is TREE_15


def test_the_baseline_is_not_put_forward() -> None:
    assert ARMS[choose(table([0.8, 0.9, 1.0, 0.7]), 2, QUIET, RULE)] is CHAIN


def test_speedups_are_of_the_held_out_half() -> None:
    """Every time doubled in one half: its prompts alone are reported, the other half's ratio only chose."""
    found = table([2.0, 1.0, 1.0], spread=0.0, prompts=16)
    choosing = found.blocks < 2
    found.decode[choosing, 0] *= 4
    first, second = compare(found, choosing, 2, QUIET, 1, RULE)
    assert (first.arm, first.baseline, first.prompts) == ("ddtree-15", "autoregressive", 8)
    assert first.speedup.estimate == pytest.approx(2.0)
    assert first.selection_speedup == pytest.approx(0.5)
    assert first.token_weighted_speedup == pytest.approx(2.0)
    assert second.speedup.estimate == pytest.approx(1.0)
    assert second.p_value == 1.0


def test_geometric_mean_over_prompts_and_token_weighted() -> None:
    """Ratios 1 (on 10 tokens) and 4 (on 30 tokens) of one second each: sqrt(4), and 40 s over 10 + 7.5 s."""
    tokens = np.array([[10.0, 10.0]] * 8 + [[30.0, 30.0]] * 8)
    decode = tokens * np.array([[1.0, 1.0]] * 8 + [[0.25, 1.0]] * 8)
    found = Measurements((TREE_7, PLAIN), np.arange(16) % 2, np.full(16, "chat"), decode, tokens, decode / tokens)
    (comparison,) = compare(found, found.blocks == 0, 1, QUIET, 1, RULE)
    assert comparison.speedup.estimate == pytest.approx(2.0)
    assert comparison.token_weighted_speedup == pytest.approx(40 / 17.5)


def test_p_values_are_adjusted_over_all_arms() -> None:
    found = table([1.02, 1.01, 1.0, 1.015], spread=0.03)
    comparisons = compare(found, found.blocks < 2, 2, QUIET, 1, RULE)
    assert sorted(c.arm for c in comparisons) == ["ddtree-15", "ddtree-7", "dflash"]
    smallest = min(comparisons, key=lambda c: c.p_value)
    assert smallest.p_adjusted == pytest.approx(min(1.0, 3 * smallest.p_value))


def test_measurements_keep_the_prompts_that_every_arm_answered() -> None:
    rows = [request(arm=arm.name, prompt_id=p, block=i) for arm in (PLAIN, CHAIN) for i, p in enumerate("abc")]
    rows += [failed(arm="dflash", prompt_id="d", block=3), request(arm="autoregressive", prompt_id="d", block=3)]
    rows += [request(arm="other", prompt_id=p) for p in "xyz"]
    rows[0] |= {"first": 3.0}
    found = measurements(measure(frame(*rows)), (CHAIN, PLAIN))
    assert found.blocks.tolist() == [1, 2]
    assert found.step == pytest.approx(np.full((2, 2), 0.4))
    assert found.log_ratios(1, 0) == pytest.approx([0.0, 0.0])


def test_measurements_pair_by_prompt_whatever_the_order() -> None:
    slow = [request(prompt_id=p, last=1.0 + 10.0 * t) for p, t in zip("abc", (1, 2, 3), strict=True)]
    fast = [request(arm="dflash", prompt_id=p, last=1.0 + 5.0 * t) for p, t in zip("cba", (3, 2, 1), strict=True)]
    found = measurements(measure(frame(*slow, *fast)), (PLAIN, CHAIN))
    assert found.log_ratios(0, 1) == pytest.approx([math.log(2)] * 3)
