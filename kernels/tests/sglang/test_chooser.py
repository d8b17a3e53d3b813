"""Which step a time and a result belong to, with and without overlap scheduling."""

from collections.abc import Sequence
from typing import Any

import pytest

from ddtree.sglang.chooser import Chooser


class Policy:
    """Takes the widths in turn, and notes what it is told."""

    def __init__(self, order: Sequence[int]) -> None:
        self.order = list(order)
        self.timed_: list[tuple[int, float]] = []
        self.learnt: list[tuple[int, list[float], float]] = []

    def choose(self, requests: int, context: float) -> int:
        return self.order.pop(0)

    def timed(self, index: int, requests: int, context: float, step_ms: float) -> None:
        self.timed_.append((index, round(step_ms)))

    def learn(self, index: int, expected: list[float], accepted: float) -> None:
        self.learnt.append((index, expected, accepted))


class Probe:
    """Numbers its glances."""

    def __init__(self) -> None:
        self.glances = 0

    def glance(self, requests: int) -> Any:
        self.glances += 1
        number = float(self.glances)
        return type("Numbers", (), {"mean": lambda _: [number]})()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def chooser(order: Sequence[int]) -> tuple[Chooser, Policy, Clock]:
    policy, clock = Policy(order), Clock()
    return Chooser(policy, Probe(), clock), policy, clock  # type: ignore[arg-type]


def launch(subject: Chooser, clock: Clock, at_ms: float) -> None:
    clock.now = at_ms / 1000
    subject.choose(2, 100.0)
    subject.look()


def test_without_overlap_a_step_is_over_before_the_next_is_launched() -> None:
    subject, policy, clock = chooser([0, 1, 2])
    for at in (0, 5, 12):
        launch(subject, clock, at)
        subject.learn([1, 2])
    assert policy.timed_ == [(0, 5), (1, 7)]
    assert policy.learnt == [(0, [1.0], 1.5), (1, [2.0], 1.5), (2, [3.0], 1.5)]


def test_in_overlap_scheduling_a_time_belongs_to_the_step_before_the_last() -> None:
    """GPU times of 4 and 6: the host launches a step, then waits for the one before it."""
    subject, policy, clock = chooser([0, 1, 2, 3])
    launch(subject, clock, 0)
    launch(subject, clock, 1)
    for at in (5, 11):
        subject.learn([3])
        launch(subject, clock, at)
    assert policy.timed_ == [(0, 4), (1, 6)]


def test_a_prefill_s_time_is_no_step_s() -> None:
    subject, policy, clock = chooser([0, 1, 2, 3])
    launch(subject, clock, 0)
    subject.interrupt()  # a prefill of 50 ms follows the step
    subject.learn([1])
    launch(subject, clock, 5)
    launch(subject, clock, 55)  # the result of the prefill came
    subject.learn([1])
    launch(subject, clock, 59)
    assert policy.timed_ == [(1, 4)]


def test_the_time_up_to_a_prefill_is_that_of_the_step_whose_result_came() -> None:
    """GPU times of 4, 6 and 5, then a prefill. Of ten steps between two prefills only the last is not timed."""
    subject, policy, clock = chooser([0, 1, 2])
    launch(subject, clock, 0)
    launch(subject, clock, 1)
    subject.learn([1])
    launch(subject, clock, 5)
    subject.learn([1])
    clock.now = 0.011
    subject.interrupt()
    subject.learn([1])
    subject.interrupt()  # another prefill
    assert policy.timed_ == [(0, 4), (1, 6)]


@pytest.mark.parametrize("overlap", [False, True])
def test_the_time_of_an_idle_server_is_no_step_s(overlap: bool) -> None:
    """The requests of its last step are over; a prefill comes a second later."""
    subject, policy, clock = chooser([0, 1])
    launch(subject, clock, 0)
    if overlap:
        launch(subject, clock, 1)
        subject.learn([1])
    subject.learn([1])
    clock.now = 1.0
    subject.interrupt()
    assert policy.timed_ == []


def test_results_that_never_came_are_forgotten() -> None:
    subject, policy, clock = chooser([0] * 20)
    for at in range(20):
        launch(subject, clock, at)
    subject.learn([])
    subject.learn([2])
    (learnt,) = policy.learnt
    assert learnt == (0, [13.0], 2.0), "eight are kept"
