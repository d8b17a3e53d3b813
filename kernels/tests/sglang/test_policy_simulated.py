"""SIMULATED: the automatic policy against the linear chain, on made-up targets whose true step times are known.

No GPU ran for these numbers. A step takes the longer of the host's time and the GPU's; what start-up measures and what
the policy is told of each step are blurred. Linear DFlash pays the same steps at the block's width and is counted with
the same blur, so the comparison is of choices alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp
from random import Random

import pytest

from ddtree.sglang.policy import CostModel, WidthPolicy

BLOCK, WIDTHS, BATCHES, CONTEXT = 16, (16, 32, 64, 128), (1, 4, 16, 32), 1000
STEPS = 800
LAG = 2
"""Steps after which the policy is told what came of one, in overlap scheduling."""


@dataclass(frozen=True)
class Target:
    """GPU milliseconds by tokens verified in all; `host`: milliseconds that the host needs for a step."""

    gpu: Callable[[int], float]
    host: float


TARGETS = {
    "dense, bound by its weights": Target(lambda tokens: 6 + max(0, tokens - 256) / 45, 2.5),
    "small, bound by the host": Target(lambda tokens: 0.8 + tokens / 2000, 1.1),
    "experts, dearer with every token": Target(lambda tokens: 4 + min(4, tokens / 64) + max(0, tokens - 512) / 170, 3),
    "a cliff after 64 tokens": Target(lambda tokens: 6 + 2.5 * (tokens > 64) + max(0, tokens - 512) / 128, 2),
    "compute-bound from the first token": Target(lambda tokens: 3 + tokens / 30, 1),
}
DRAFTERS = {
    "good": (3.0, (3.6, 4.2, 4.6, 4.8)),
    "poor": (1.25, (1.3, 1.34, 1.36, 1.37)),
    "sure": (7.4, (7.6, 7.8, 7.9, 7.95)),
    "nothing beside its chain": (3.0, (3.0, 3.0, 3.0, 3.0)),
}
"""Tokens a step: of the linear chain, and of the tree of each width."""


def simulated(target: Target, drafter: str, batch: int, belief: float, blur: float, measured: float) -> float:
    """Tokens a second of the policy over those of linear DFlash. blur, measured: spread of step times in service and
    of what start-up measures. `belief`: drafts accepted for each that the drafter promises.
    """
    random = Random(f"{drafter} {batch} {belief} {blur}")
    chain, promised = DRAFTERS[drafter]
    points = {
        (size, width, context): target.gpu(size * width) * exp(random.gauss(0, measured))
        for size in BATCHES
        for width in WIDTHS
        for context in (64, 8192)
    }
    policy, told = WidthPolicy(WIDTHS, CostModel(points)), []
    tokens = ours = linear = before = 0.0
    for step in range(STEPS):
        index = policy.choose(batch, CONTEXT)
        noise = exp(random.gauss(0, blur))
        times = [max(target.host, target.gpu(batch * width)) * noise for width in WIDTHS]
        tokens, ours = tokens + 1 + belief * (promised[index] - 1), ours + times[index]
        linear += times[WIDTHS.index(BLOCK)]
        if step:
            policy.timed(index, batch, CONTEXT, before)  # the host is a step ahead: what it waits for is the one before
        before = times[index]
        accepted = max(0.0, random.gauss(belief * (promised[index] - 1), batch**-0.5))
        told.append((index, [1 + (each - 1) * max(0.1, random.gauss(1, 0.3)) for each in promised], accepted))
        if step >= LAG:
            policy.learn(*told[step - LAG])
    return (tokens / ours) / ((1 + belief * (chain - 1)) * STEPS / linear)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_it_never_loses_more_than_two_percent_to_the_chain(target: str, drafter: str) -> None:
    """At any batch, with a true cost model and with blurred ones."""
    for batch in BATCHES:
        for belief, blur, measured in ((1.0, 0.0, 0.0), (0.5, 0.0, 0.0), (1.0, 0.05, 0.03), (0.5, 0.1, 0.05)):
            found = simulated(TARGETS[target], drafter, batch, belief, blur, measured)
            assert found >= 0.98, (target, drafter, batch, belief, blur, found)


def test_a_tree_is_taken_where_it_pays_and_the_chain_s_width_where_not() -> None:
    dense = TARGETS["dense, bound by its weights"]
    gains = [simulated(dense, "good", batch, 1.0, 0.05, 0.03) for batch in BATCHES]
    assert gains[0] > 1.5, "64 nodes and more cost nothing here"
    assert gains == sorted(gains, reverse=True)
    assert 1.15 < gains[-1] < 1.25, "the tree of the block's own width"


def test_a_slow_host_makes_wide_trees_free_up_to_where_the_gpu_is_slower() -> None:
    small = TARGETS["small, bound by the host"]
    assert simulated(small, "good", 1, 1.0, 0.05, 0.03) > 1.5
    assert 1.15 < simulated(small, "good", 32, 1.0, 0.05, 0.03) < 1.3
