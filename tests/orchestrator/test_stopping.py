import numpy as np
import pytest

from engines.base import Arm, Method
from orchestrator.judgement import Point
from orchestrator.records import Verdict
from orchestrator.selection import Measurements, split
from orchestrator.spec import BlockSpec, SelectionSpec
from orchestrator.stopping import DROP_ERROR, look

BLOCKS = BlockSpec()
RULE = SelectionSpec(baseline="a0", resamples=1000)


def sweep(gains: list[float], blocks: int, seed: int = 0, shared: float = 0.01, request: float = 0.03) -> Measurements:
    """Blocks of 12 prompts; the first arm is the baseline."""
    draw = np.random.default_rng(seed)
    labels = np.arange(12 * blocks) % blocks
    arms = tuple(Arm(f"a{i}", "reference", Method.AUTOREGRESSIVE) for i in range(len(gains)))
    noise = draw.normal(0, request, (len(labels), len(gains))) + draw.normal(0, shared, (blocks, len(gains)))[labels]
    step = np.exp(noise) / np.array(gains)
    tokens = np.full(step.shape, 100.0)
    return Measurements(arms, labels, np.full(len(labels), "chat"), step * tokens, tokens, step)


def test_a_great_gain_is_clear_at_once() -> None:
    view = look(sweep([1.0, 1.5, 1.2], 4), 0, RULE, BLOCKS)
    assert view.candidate == "a1"
    assert view.stop.startswith("clear: a1 is at least ")
    assert view.dropped == {}


def test_arms_that_cannot_win_end_it_too() -> None:
    assert look(sweep([1.0, 0.8, 0.7], 6), 0, RULE, BLOCKS).stop == "clear: no arm is 2 % faster than a0"


def test_a_close_call_asks_for_more() -> None:
    view = look(sweep([1.0, 1.03], 4), 0, RULE, BLOCKS)
    assert view.stop == ""
    assert view.half_width is not None
    assert view.half_width > BLOCKS.half_width


def test_a_narrow_interval_is_enough_wherever_it_lies() -> None:
    quiet = sweep([1.0, 1.02], 8, shared=0.0005, request=0.005)
    assert look(quiet, 0, RULE, BLOCKS).stop.startswith("narrow: the speed-up is known to +-0.")
    assert look(quiet, 0, RULE, BlockSpec(half_width=0.0005)).stop == ""


def test_two_blocks_a_half_are_the_least() -> None:
    view = look(sweep([1.0, 2.0], 3), 0, RULE, BLOCKS)
    assert (view.candidate, view.stop) == (None, "")


def test_a_look_reads_the_choosing_half_alone() -> None:
    """Whatever the reporting half holds, the look says the same: this is what keeps the error rate."""
    found = sweep([1.0, 1.03, 0.9], 6)
    reporting = ~split(found.blocks, RULE.seed)
    before = look(found, 0, RULE, BLOCKS)
    found.decode[reporting, 1] /= 3
    found.step[reporting, 2] *= 7
    assert look(found, 0, RULE, BLOCKS) == before


def test_a_hopeless_arm_is_dropped_and_the_baseline_never() -> None:
    view = look(sweep([0.7, 1.0, 1.02, 0.8], 8), 1, SelectionSpec(baseline="a1"), BLOCKS)
    assert list(view.dropped) == ["a0", "a3"]
    behind = sweep([1.0, 1.24, 1.23, 0.9], 8, shared=0.0)
    view = look(behind, 0, SelectionSpec(baseline="a0", margin=0.2), BlockSpec(half_width=0.0001))
    assert (view.stop, list(view.dropped)) == ("", ["a3"])
    view = look(sweep([0.98, 1.0, 1.01, 0.8], 8), 0, RULE, BLOCKS)
    assert view.dropped["a3"].endswith("% slower than a2 on 48 prompts")


def test_what_trials_share_does_not_make_an_arm_hopeless() -> None:
    """One slow trial: every prompt of it agrees, and yet it is one observation. Without it the arm would be dropped."""
    found = sweep([1.0, 1.0, 1.03], 8, shared=0.0, request=0.01)
    slow = int(found.blocks[split(found.blocks, RULE.seed)][0])
    found.decode[found.blocks == slow, 1] *= 1.6
    found.step[found.blocks == slow, 1] *= 1.6
    assert look(found, 0, RULE, BLOCKS).dropped == {}


def test_dropping_keeps_its_error_budget() -> None:
    """Of equal arms, at any of the looks, at most DROP_ERROR each."""
    lost = 0
    for seed in range(150):
        found = sweep([1.0] * 4, 14, seed)
        views = [look(found.take(found.blocks < count), 0, RULE, BLOCKS) for count in range(4, 16, 2)]
        lost += any("a1" in view.dropped for view in views)
    assert lost / 150 <= DROP_ERROR


@pytest.mark.parametrize("peeking", [False, True])
def test_stopping_keeps_the_error_rate_and_peeking_does_not(peeking: bool) -> None:
    """The pitfall beside the rule: end as soon as the reporting half shows a winner, and equal arms win too often."""
    point = Point(1, SelectionSpec(baseline="a0", margin=0.0, resamples=1000), {})
    won = 0
    for seed in range(120):
        found = sweep([1.0, 1.0], 16, seed)
        for count in range(4, 18, 2):
            part = found.take(found.blocks < count)
            verdict = point.judge(part).verdict if peeking or count == 16 else Verdict.TIE
            stop = verdict is Verdict.WINNER if peeking else bool(look(part, 0, point.rule, BLOCKS).stop)
            if stop or count == 16:
                won += (verdict if peeking else point.judge(part).verdict) is Verdict.WINNER
                break
    assert (won / 120 > 0.05) == peeking
