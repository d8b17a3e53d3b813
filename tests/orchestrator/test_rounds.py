import pytest

from orchestrator.records import Look
from orchestrator.rounds import count, due, given_up, horizon, next_of_blocks, open_points, planned
from orchestrator.spec import BlockSpec
from tests.orchestrator.acting import plain, sweep_plan

ARMS = [plain(), {"method": "dflash"}, {"method": "ddtree", "budget": 7}]
BLOCKS = {"count": 2, "max": 6, "step": 2, "seed": 5}
PLAN = sweep_plan(ARMS, blocks=BLOCKS, workload={"prompts": {"count": 12}, "max_tokens": 4, "concurrency": [1, 2]})


def taken(concurrency: int, blocks: int, stop: str = "", **dropped: str) -> Look:
    return Look(
        time="", concurrency=concurrency, blocks=blocks, candidate="dflash", half_width=0.1, dropped=dropped, stop=stop
    )


@pytest.mark.parametrize(
    ("given", "found"),
    [({}, (4, 16)), ({"count": 6}, (6, 6)), ({"count": 6, "max": 9}, (6, 9)), ({"max": 8}, (4, 8))],
)
def test_count_alone_is_all_the_blocks(given: dict[str, int], found: tuple[int, int]) -> None:
    blocks = BlockSpec.model_validate(given)
    assert (blocks.count, blocks.max) == found


def test_looks_are_counted_up_to_the_last_but_one_round() -> None:
    assert BlockSpec(count=4, max=16, step=2).looks == 6
    assert BlockSpec(count=4, max=9, step=2).looks == 3
    assert BlockSpec(count=4, max=4).looks == 0


def test_a_sweep_begins_with_count_blocks() -> None:
    assert {unit.block for unit in due(PLAN, [])} == {0, 1}
    assert open_points(PLAN, []) == [1, 2]
    assert count(due(PLAN, [])) == 12


def test_every_look_adds_a_step_to_its_own_point_until_it_stops_or_max_is_reached() -> None:
    looks = [taken(1, 2), taken(2, 2, stop="clear")]
    assert (horizon(PLAN.spec.blocks, looks, 1), horizon(PLAN.spec.blocks, looks, 2)) == (4, 2)
    assert open_points(PLAN, looks) == [1]
    looks.append(taken(1, 4))
    assert {unit.block for unit in due(PLAN, looks) if unit.concurrency == 1} == set(range(6))
    assert open_points(PLAN, looks) == []


def test_a_dropped_arm_is_measured_no_further_at_that_point() -> None:
    looks = [taken(1, 2, dflash="hopeless"), taken(2, 2)]
    units = due(PLAN, looks)
    ran = {(t.arm.name, t.concurrency) for unit in units if unit.block >= 2 for t in unit.trials}
    assert ran == {("autoregressive", 1), ("ddtree-budget=7", 1)} | {
        (arm, 2) for arm in ("autoregressive", "dflash", "ddtree-budget=7")
    }
    assert given_up(looks, 1) == {"dflash": (2, "hopeless")}
    assert given_up(looks, 2) == {}


def test_the_trials_of_each_arm_are_counted() -> None:
    looks = [taken(1, 2, dflash="hopeless"), taken(2, 2, stop="clear")]
    assert planned(PLAN.spec, looks) == {"autoregressive": 6, "dflash": 4, "ddtree-budget=7": 6}
    assert sum(planned(PLAN.spec, looks).values()) == count(due(PLAN, looks))


@pytest.mark.parametrize(
    ("own", "others", "taken"),
    [
        (None, [], (1, 2)),
        (2, [], (2, 1)),
        (0, [1], (2, 1)),
        (0, [1, 2], (3, 1)),
        (0, [1, 2, 3], None),
        (None, [1, 2, 3], (1, 2)),
        (None, [1, 2, 2, 3, 1], (3, 1)),
    ],
)
def test_a_slot_ends_its_block_takes_a_free_one_and_joins_others_only_where_it_has_none(
    own: int | None, others: list[int], taken: tuple[int, int] | None
) -> None:
    left = [unit for unit in PLAN.units if (unit.block, unit.concurrency) >= (1, 2) and unit.block < 4]
    unit = next_of_blocks(left, own, others)
    assert (unit and (unit.block, unit.concurrency)) == taken
