"""SIMULATED: the automatic policy against the linear chain, on made-up targets whose true step times are known.

No GPU ran for these numbers. A step takes the longer of the host's time and the GPU's; what start-up measures and what
the policy is told of each step are blurred. Linear DFlash pays the same steps at the block's width and is counted with
the same blur, so the comparison is of choices alone.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp
from random import Random
from typing import Any

import pytest

from ddtree.sglang.chooser import Chooser
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


# Below, SGLang's scheduler is simulated too: it launches a step or a prefill, then waits for the result of the one
# before, and `Chooser` makes of that what it can. Step times are not given but come about.

NARROW, LADDER, CHAIN, TREES = 8, (8, 16, 32, 64), 2.63, (2.9, 3.3, 3.6, 3.8)
HOST_BOUND = Target(lambda tokens: 1.7 + tokens / 1100, 8)
GPU_BOUND = Target(lambda tokens: 5 + max(0, tokens - 200) / 60, 2)
PREFILL = Target(lambda _: 2, 6)


@dataclass(frozen=True)
class Load:
    """`batches`: requests of each step. `held`: milliseconds by which the host is late in a step. `prefills`: steps
    that a prefill precedes. Only steps from `since` on are counted.
    """

    batches: Sequence[int]
    held: Mapping[int, float] = field(default_factory=dict)
    prefills: frozenset[int] = frozenset()
    overlap: bool = True
    noise: float = 0.0
    seed: int = 0
    since: int = 0


class Fixed:
    """One width for ever."""

    def __init__(self, index: int) -> None:
        self.index = index

    def choose(self, requests: int, context: float) -> int:
        return self.index

    def timed(self, *_: float) -> None: ...

    def learn(self, *_: Any) -> None: ...


class Scheduler:
    """SGLang's overlap scheduling (or, without overlap, its plain one) on a simulated clock."""

    def __init__(self, policy: Any, target: Target, tokens: Sequence[float], load: Load) -> None:
        self.random = Random(load.seed)
        self.target, self.tokens, self.load = target, tokens, load
        self.chooser = Chooser(policy, self, lambda: self.now / 1000)  # type: ignore[arg-type]
        self.now = self.free = 0.0
        self.queue: deque[tuple[float, int | None, int]] = deque()

    def glance(self, requests: int) -> Any:
        blur = 0.3 / requests**0.5
        seen = [1 + (each - 1) * max(0.1, self.random.gauss(1, blur)) for each in self.tokens]
        return type("Numbers", (), {"mean": lambda _: seen})()

    def throughput(self) -> float:
        emitted = start = 0.0
        for step, batch in enumerate(self.load.batches):
            if step == self.load.since:
                emitted, start = 0.0, self.now
            if step in self.load.prefills:
                self.chooser.interrupt()
                self.turn(None, batch, PREFILL.gpu(batch), PREFILL.host)
            index = self.chooser.choose(batch, CONTEXT)
            self.chooser.look()
            emitted += batch * self.tokens[index]
            host = self.target.host + self.load.held.get(step, 0.0)
            self.turn(index, batch, self.target.gpu(batch * LADDER[index]), host)
        return emitted / (max(self.now, self.free) - start)

    def turn(self, index: int | None, batch: int, gpu: float, host: float) -> None:
        """The host launches in half its time, waits for the result before (or for this one) and handles it."""
        host *= exp(self.random.gauss(0, self.load.noise))
        self.now += host / 2
        self.free = max(self.free, self.now) + gpu * exp(self.random.gauss(0, self.load.noise))
        self.queue.append((self.free, index, batch))
        while len(self.queue) > self.load.overlap:
            self.result(*self.queue.popleft())
        self.now += host / 2

    def result(self, end: float, index: int | None, batch: int) -> None:
        self.now = max(self.now, end)
        if index is not None:
            drafts = self.tokens[index] - 1
            self.chooser.learn([max(0, round(self.random.gauss(drafts, 1.5))) for _ in range(batch)])


def served(target: Target, load: Load, too_low: Mapping[int, float] | None = None) -> tuple[float, float]:
    """The policy's throughput over that of the best fixed width, and over that of linear DFlash. `too_low`: by what
    start-up measured a width wrongly; the host's time it never sees.
    """
    wrong = too_low or {}
    points = {
        (size, width, context): target.gpu(size * width) * wrong.get(width, 1.0)
        for size in {*load.batches}
        for width in LADDER
        for context in (64, 8192)
    }
    ours = Scheduler(WidthPolicy(LADDER, CostModel(points)), target, TREES, load).throughput()
    best = max(Scheduler(Fixed(index), target, TREES, load).throughput() for index in range(len(LADDER)))
    linear = Scheduler(Fixed(LADDER.index(NARROW)), target, [CHAIN] * len(LADDER), load).throughput()
    return ours / best, ours / linear


def turns(steps: int, every: int, sizes: Sequence[int] = (32, 24)) -> list[int]:
    return [sizes[step // every % len(sizes)] for step in range(steps)]


@pytest.mark.parametrize("every", [1, 10, 50])
@pytest.mark.parametrize("overlap", [True, False])
def test_a_host_slower_than_every_width_is_known_within_a_few_steps(every: int, overlap: bool) -> None:
    """The batch size changes all the while, as a server's does."""
    of_best, of_linear = served(HOST_BOUND, Load(turns(100, every), overlap=overlap))
    assert of_best >= 0.97
    assert of_linear >= 1.2


def test_it_is_known_at_every_batch_size_that_comes_by() -> None:
    of_best, _ = served(HOST_BOUND, Load(turns(600, 3, (32, 24, 16, 8, 4, 2, 1))))
    assert of_best >= 0.97


@pytest.mark.parametrize("noise", [0.1, 0.3])
def test_a_host_whose_steps_are_uneven_is_known_as_soon(noise: float) -> None:
    found = [served(HOST_BOUND, Load(turns(300, 10), noise=noise, seed=seed))[0] for seed in range(4)]
    assert sum(found) / len(found) >= 0.97 - noise / 10


@pytest.mark.parametrize("between", [2, 3, 10])
def test_prefills_every_few_steps_hide_it_no_longer_than_that(between: int) -> None:
    prefills = frozenset(range(0, 300, between))
    of_best, _ = served(HOST_BOUND, Load(turns(300, 10), prefills=prefills))
    assert of_best >= 0.97


@pytest.mark.parametrize("batch", [4, 8, 16])
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_wide_trees_that_start_up_made_out_too_cheap_are_found_out(batch: int, noise: float) -> None:
    load = Load([batch] * 2000, noise=noise)
    of_best, of_linear = served(GPU_BOUND, load, {32: 0.7, 64: 0.7})
    assert of_best >= 0.98
    assert of_linear >= 1.05


@pytest.mark.parametrize("host", [5.5, 6, 8])
@pytest.mark.parametrize("batch", [4, 8, 16])
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_host_about_as_slow_as_the_gpu(host: float, batch: int, noise: float) -> None:
    of_best, of_linear = served(Target(GPU_BOUND.gpu, host), Load([batch] * 500, noise=noise))
    assert of_best >= 0.98
    assert of_linear >= 1.1


@pytest.mark.parametrize("at", [0, 1, 2, 60])
@pytest.mark.parametrize("target", [HOST_BOUND, GPU_BOUND], ids=["bound by the host", "bound by the GPU"])
@pytest.mark.parametrize("overlap", [True, False])
def test_one_pause_of_the_host_is_over_within_some_tens_of_steps(at: int, target: Target, overlap: bool) -> None:
    of_best, _ = served(target, Load([16] * 200, {at: 600.0}, overlap=overlap, since=at + 40))
    assert of_best >= 0.97


@pytest.mark.parametrize("batch", [4, 8, 16])
@pytest.mark.parametrize("late", [5.0, 10.0, 20.0])
@pytest.mark.parametrize("overlap", [True, False])
def test_a_host_that_is_slow_no_more_makes_wide_trees_dear_again(batch: int, late: float, overlap: bool) -> None:
    """At once, or little by little."""
    suddenly = dict.fromkeys(range(150), late)
    slowly = {step: late * min(1, (250 - step) / 200) for step in range(250)}
    for held, since in ((suddenly, 150 + 80), (slowly, 250 + 80)):
        of_best, of_linear = served(GPU_BOUND, Load([batch] * 800, held, overlap=overlap, since=since))
        assert of_best >= 0.97, (held, of_best)
        assert of_linear >= 1.05
