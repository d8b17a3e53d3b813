"""Simulated servers of known capacity: the rule must see those that are asked too much, and leave the others alone."""

from __future__ import annotations

import heapq
import random

import pytest

from orchestrator.load.backlog import Backlog


def stopped(load: float, slots: int, burstiness: float, requests: int, seed: int) -> bool:
    """Whether the rule stops a queue of `slots` servers with exponential times at `load` times their capacity."""
    draw = random.Random(seed)
    rate = load * slots
    times, now = [], 0.0
    for _ in range(requests):
        times.append(now)
        now += draw.gammavariate(burstiness, 1 / (rate * burstiness))
    backlog, free, ends = Backlog(slots, times), [0.0] * slots, list[float]()
    for time in times:
        while ends and ends[0] <= time:
            heapq.heappop(ends)
            backlog.answered()
        if backlog.excess(time):
            return True
        begin = max(time, heapq.heappop(free))
        end = begin + draw.expovariate(1.0)
        heapq.heappush(free, end)
        heapq.heappush(ends, end)
        backlog.sent()
    return False


def share(load: float, slots: int, burstiness: float = 1.0, requests: int = 600) -> float:
    return sum(stopped(load, slots, burstiness, requests, seed) for seed in range(60)) / 60


@pytest.mark.parametrize("slots", [1, 8])
@pytest.mark.parametrize("burstiness", [0.5, 1.0])
def test_a_server_that_keeps_up_is_left_alone(slots: int, burstiness: float) -> None:
    assert share(0.6, slots, burstiness) == 0
    assert share(0.9, slots, burstiness) <= 0.05


@pytest.mark.parametrize("slots", [1, 8])
def test_a_server_that_is_asked_too_much_is_seen(slots: int) -> None:
    assert share(1.5, slots) >= 0.95
    assert share(2.0, slots, requests=200) >= 0.95


def test_a_queue_that_came_with_a_burst_and_goes_is_no_over_saturation() -> None:
    backlog = Backlog(2, [0.1 * number for number in range(30)])
    for _ in range(12):
        backlog.sent()
    assert backlog.waiting == 10
    assert backlog.excess(1.0) == "", "too few requests to tell"
    for _ in range(12):
        backlog.answered()
        backlog.sent()
    assert backlog.excess(2.0) == ""


def test_the_line_says_what_was_sent_and_answered() -> None:
    backlog = Backlog(2, [0.1 * number for number in range(100)])
    for _ in range(60):
        backlog.sent()
    for _ in range(20):
        backlog.answered()
    assert backlog.excess(10.0) == (
        "over-saturated: 6.00 requests/s were sent and 2.00 answered; after 10 s 38 wait, "
        "and a server that keeps up has at most 23"
    )
