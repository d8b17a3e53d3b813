from typing import Any

import pytest

from orchestrator.spec import SweepSpec
from tests.orchestrator.spec.refusing import refused
from tests.orchestrator.sweeps import fake_sweep


def test_grid_becomes_one_arm_for_each_combination() -> None:
    arms = [{"method": "autoregressive"}, {"method": "ddtree", "grid": {"budget": [7, 15], "chain": [False, True]}}]
    spec = SweepSpec.model_validate(fake_sweep(arms=arms))
    assert [arm.label() for arm in spec.expanded_arms()] == [
        "autoregressive",
        "ddtree-budget=7",
        "ddtree-budget=7-chain",
        "ddtree-budget=15",
        "ddtree-budget=15-chain",
    ]


def test_grid_values_that_are_not_fields_become_options() -> None:
    arms = [{"method": "autoregressive"}, {"method": "dflash", "grid": {"step_ms": [1, 2]}}]
    spec = SweepSpec.model_validate(fake_sweep(arms=arms))
    assert [arm.options for arm in spec.expanded_arms()] == [{}, {"step_ms": 1}, {"step_ms": 2}]


def test_grid_values_are_checked_like_written_ones() -> None:
    arms = [{"method": "autoregressive"}, {"method": "ddtree", "grid": {"budget": [0]}}]
    told = refused(fake_sweep(arms=arms))
    assert "grid: budget: Input should be greater than or equal to 1" in told


@pytest.mark.parametrize(
    ("arm", "complaint"),
    [
        ({"method": "ddtree"}, "`budget` is required"),
        ({"method": "dflash", "budget": 7}, "not allowed for any other"),
        ({"method": "dflash", "chain": True}, "option of method ddtree"),
        ({"method": "medusa"}, "autoregressive"),
        ({"method": "ddtree", "budget": 7, "width": 8}, "Extra inputs"),
        ({"method": "ddtree", "budget": 7, "name": "a b"}, "pattern"),
        ({"method": "ddtree", "name": "x", "grid": {"budget": [7]}}, "remove `name`"),
        ({"method": "ddtree", "grid": {"bugdet": [7]}}, "not allowed for any other; the grid has bugdet"),
        ({"method": "ddtree", "budget": 7, "grid": {"budget": [15]}}, "`budget` stands in the arm and in its grid"),
        ({"method": "ddtree", "chain": True, "grid": {"budget": [7], "chain": [False]}}, "`chain` stands in the arm"),
    ],
)
def test_bad_arm_is_refused(arm: dict[str, Any], complaint: str) -> None:
    assert complaint in refused(fake_sweep(arms=[{"method": "autoregressive"}, arm]))
