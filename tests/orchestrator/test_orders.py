"""Known properties of Latin squares, for every number of arms, points and slots that a sweep may have."""

import math
from collections import Counter
from itertools import pairwise

import pytest

from orchestrator.orders import order
from orchestrator.plan import Unit
from orchestrator.records import Look
from orchestrator.rounds import due
from tests.orchestrator.acting import plain, sweep_plan

SIZES = range(1, 8)
POINTS = range(1, 5)


def arms(count: int) -> list[str]:
    return [f"arm-{number}" for number in range(count)]


def rows(count: int, units: int, points: int = 1, seed: int = 0) -> list[list[str]]:
    return [order(arms(count), seed, unit, points) for unit in range(units)]


@pytest.mark.parametrize("points", POINTS)
@pytest.mark.parametrize("count", SIZES)
def test_every_order_has_every_arm_once(count: int, points: int) -> None:
    assert all(sorted(row) == arms(count) for row in rows(count, 50, points))


@pytest.mark.parametrize("points", POINTS)
@pytest.mark.parametrize("count", SIZES)
def test_slots_side_by_side_never_measure_an_arm_in_the_same_place(count: int, points: int) -> None:
    all_rows = rows(count, 120, points)
    for slots in range(2, count + 1):
        aligned = slots == count and math.gcd(count, points) > 1  # a row is left out now and then, after whole rounds
        for start in range(0, len(all_rows) - slots + 1, slots if aligned else 1):
            together = all_rows[start : start + slots]
            assert all(len(set(column)) == slots for column in zip(*together, strict=True)), (slots, start)


@pytest.mark.parametrize("points", POINTS)
@pytest.mark.parametrize("count", SIZES)
def test_over_the_blocks_of_a_point_each_arm_has_each_place_equally_often(count: int, points: int) -> None:
    for point in range(points):
        places: Counter[tuple[str, int]] = Counter({(arm, place): 0 for arm in arms(count) for place in range(count)})
        for block in range(3 * count):
            drawn = order(arms(count), 3, block * points + point, points)
            places.update((arm, place) for place, arm in enumerate(drawn))
            assert max(places.values()) - min(places.values()) <= 1, "as far as the number of blocks allows"
        assert set(places.values()) == {3}


@pytest.mark.parametrize("count", [2, 4, 6])
def test_each_of_an_even_number_of_arms_follows_each_other_one_equally_often(count: int) -> None:
    follows = Counter(pair for row in rows(count, count) for pair in pairwise(row))
    assert len(follows) == count * (count - 1)
    assert len(set(follows.values())) == 1


def test_the_square_is_drawn_and_the_same_again_for_the_same_seed() -> None:
    assert rows(4, 8, seed=1) == rows(4, 8, seed=1)
    squares = {tuple(map(tuple, rows(4, 4, seed=seed))) for seed in range(40)}
    assert len(squares) > 30
    assert {rows(4, 1, seed=seed)[0][0] for seed in range(40)} == set(arms(4)), "any arm may be the first"


def test_arms_that_are_left_after_a_look_have_a_square_of_their_own_and_the_same_on_resume() -> None:
    given = [plain(), *({"method": "ddtree", "budget": budget} for budget in (3, 7, 15))]
    blocks = {"count": 4, "max": 10, "step": 6, "seed": 5}
    plan = sweep_plan(given, blocks=blocks, workload={"prompts": {"count": 20}, "max_tokens": 4, "concurrency": [1]})
    gone = {"ddtree-budget=7": "hopeless"}
    look = Look(time="", concurrency=1, blocks=4, candidate=None, half_width=None, dropped=gone, stop="")
    units = due(plan, [look])
    assert _names(units[:4]) == _names(list(plan.units[:4])), "what was measured stays as it was"
    left = _names(units[4:])
    for start in (0, 3):
        assert all(len(set(column)) == 3 for column in zip(*left[start : start + 3], strict=True))
    assert due(plan, [look]) == units


def _names(units: list[Unit]) -> list[list[str]]:
    return [[trial.arm.name for trial in unit.trials] for unit in units]
