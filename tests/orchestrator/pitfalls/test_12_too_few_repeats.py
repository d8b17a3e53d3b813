"""Few repeats, judged by the best of them: the smallest of n is a winner of its noise."""

import numpy as np

from orchestrator.judgement import MIN_PROMPTS, Point
from orchestrator.records import Verdict
from orchestrator.spec import SelectionSpec
from tests.orchestrator.test_stopping import sweep

RULE = SelectionSpec(baseline="a0", margin=0.02, resamples=1000)
SWEEPS = 60


def test_equal_arms_win_by_their_best_repeat_and_not_by_the_rule() -> None:
    best, ruled = 0, 0
    for seed in range(SWEEPS):
        found = sweep([1.0] * 6, 4, seed, shared=0.02)
        trials = np.array([found.log_times()[found.blocks == block].mean(axis=0) for block in range(4)])
        smallest = trials.min(axis=0)
        best += bool(smallest[1:].min() < smallest[0] - np.log(1.02))
        ruled += Point(1, RULE, {}).judge(found).verdict is Verdict.WINNER
    assert best / SWEEPS > 0.2
    assert ruled / SWEEPS <= 0.05


def test_too_few_prompts_decide_nothing() -> None:
    found = sweep([1.0, 3.0], 2)
    few = found.take(np.arange(len(found.blocks)) < 2 * (MIN_PROMPTS - 1))
    assert Point(1, RULE, {}).judge(few).verdict is Verdict.INVALID
    assert Point(1, RULE, {}).judge(found).verdict is Verdict.WINNER


def test_what_a_day_shares_is_no_gain() -> None:
    """Blocks that drift by 10 % as a whole: arms measured one after the other would differ, interleaved ones do not."""
    found = sweep([1.0, 1.0], 8, shared=0.0, request=0.005)
    drift = np.exp(np.linspace(0, 0.1, 8))[found.blocks][:, None]
    found.decode[:] *= drift
    times = found.log_times()
    one_after_the_other = times[found.blocks >= 4, 1].mean() - times[found.blocks < 4, 0].mean()
    assert one_after_the_other > 0.04
    assert Point(1, RULE, {}).judge(found).verdict is Verdict.TIE
