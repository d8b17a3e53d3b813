from __future__ import annotations

from itertools import pairwise
from statistics import fmean, pvariance
from typing import Any

import pytest

from orchestrator.load.arrivals import Arrival, assign, by_length, offsets, replayed
from orchestrator.load.backlog import squared_variation
from orchestrator.load.traces import TraceRow
from orchestrator.prompts import Prompt
from orchestrator.spec import ArrivalSpec, WorkloadSpec


def due(count: int = 5000, block: int = 0, **spec: Any) -> tuple[float, ...]:
    return offsets(ArrivalSpec.model_validate(spec), count, block)


def gaps(times: tuple[float, ...]) -> list[float]:
    return [after - before for before, after in pairwise(times)]


def test_constant_arrivals_are_a_grid() -> None:
    assert due(4, pattern="constant", rate=4.0) == (0.0, 0.25, 0.5, 0.75)


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gamma_gaps_have_the_mean_and_the_variation_asked_for(burstiness: float) -> None:
    found = gaps(due(pattern="gamma", rate=20.0, burstiness=burstiness))
    assert fmean(found) == pytest.approx(1 / 20, rel=0.1)
    assert pvariance(found) / fmean(found) ** 2 == pytest.approx(1 / burstiness, rel=0.2)


def test_poisson_is_burstiness_one() -> None:
    assert due(50, pattern="poisson", rate=3.0) == due(50, pattern="gamma", rate=3.0, burstiness=1.0)


def test_draws_repeat_with_the_seed_and_differ_between_blocks() -> None:
    first = due(50, pattern="poisson", rate=3.0)
    assert first == due(50, pattern="poisson", rate=3.0)
    assert first != due(50, block=1, pattern="poisson", rate=3.0)
    assert first != due(50, pattern="poisson", rate=3.0, seed=1)
    assert first[0] == 0.0


@pytest.mark.parametrize(("first", "last"), [(2.0, 10.0), (10.0, 2.0), (5.0, 5.0)])
def test_a_ramps_rate_goes_from_the_first_to_the_last(first: float, last: float) -> None:
    times = due(1001, pattern="ramp", rate=first, to_rate=last)
    assert 1 / gaps(times)[0] == pytest.approx(first, rel=0.02)
    assert 1 / gaps(times)[-1] == pytest.approx(last, rel=0.02)
    middle = times[-1] / 2
    near = next(after - before for before, after in pairwise(times) if before <= middle <= after)
    assert 1 / near == pytest.approx((first + last) / 2, rel=0.02), "even in time, not in requests"


def test_a_replay_keeps_the_traces_times_and_never_asks_for_more_tokens_than_the_workload() -> None:
    rows = [TraceRow(100.0, 50, 8), TraceRow(101.0, 900, 900), TraceRow(104.0, 5, 0)]
    assert replayed(rows, 2.0, 64) == (Arrival(0.0, 8), Arrival(0.5, 64), Arrival(2.0, 1))


def test_the_longest_prompt_goes_to_the_longest_input() -> None:
    rows = [TraceRow(0.0, 50, 1), TraceRow(1.0, 900, 1), TraceRow(2.0, 5, 1)]
    assert by_length([300, 10, 20], rows) == [2, 0, 1]


def test_every_prompt_is_used_once_in_every_pattern() -> None:
    prompts = [Prompt(f"p{n}", "chat", (("user", "x" * (7 * n % 5 + 1)),)) for n in range(5)]
    rows = [TraceRow(float(n), 10 * (n % 3), 9) for n in range(5)]
    for arrivals in ({}, {"pattern": "poisson", "rate": 2.0}, {"pattern": "trace", "trace": "t.jsonl"}):
        workload = WorkloadSpec.model_validate({"arrivals": arrivals, "max_tokens": 5})
        order, planned = assign(prompts, workload, 0, rows)
        assert sorted(order, key=lambda p: p.prompt_id) == prompts
        assert len(planned) == (5 if arrivals else 0)


def test_variation_of_a_schedule() -> None:
    assert squared_variation((0.0, 1.0, 2.0)) == 0
    assert squared_variation((0.0, 1.0, 4.0)) == pytest.approx(0.25)
    assert squared_variation((0.0,)) == 0
    assert squared_variation((1.0, 1.0, 1.0)) == 0
