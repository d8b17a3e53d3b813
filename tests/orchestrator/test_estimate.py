"""What a plan is said to take, against counts made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator import estimate
from tests.orchestrator.acting import plain, sweep_plan


@pytest.mark.parametrize(("limit", "kept", "restart"), [(1, 9, 10), (2, 8, 9), (3, 3, 6)])
def test_the_starts_of_a_slot_can_be_counted_beforehand(limit: int, kept: int, restart: int) -> None:
    """Two blocks at two concurrencies, the arms a, b and c with an engine each, in these orders."""
    others = [{"method": "dflash", "name": name, "options": {"ready_after_s": s}} for name, s in (("b", 1), ("c", 2))]
    workload = {"prompts": {"count": 8}, "max_tokens": 4, "concurrency": [1, 2]}
    planned = sweep_plan([plain(), *others], workload=workload, blocks={"count": 2, "seed": 5})
    named = {trial.arm.name[0]: trial for trial in planned.units[0].trials}
    orders = ["abc", "cab", "bca", "acb"]
    units = [
        replace(unit, trials=tuple(named[letter] for letter in order))
        for unit, order in zip(planned.units, orders, strict=True)
    ]
    assert [estimate.starts(units, limit, anew) for anew in (False, True)] == [kept, restart]


@pytest.mark.parametrize(("restart", "expected"), [(False, 2 * 2), (True, 6 * 2)])
def test_blocks_that_may_be_added_begin_without_engines(restart: bool, expected: int) -> None:
    slow = {"method": "dflash", "name": "slow", "options": {"ready_after_s": 1}}
    blocks = {"count": 2, "max": 6, "seed": 5, "restart": restart}
    plan = sweep_plan([plain(), slow], blocks=blocks, workload={"prompts": {"count": 24}, "max_tokens": 4})
    profile = plan.spec.profiles[plan.profile].model_copy(update={"resident": 2})
    plan = replace(plan, spec=plan.spec.model_copy(update={"profiles": {plan.profile: profile}}))
    assert estimate.engine_starts(plan) == expected
    seconds = 3600 * (estimate.hours(plan, 40.0, 60.0) - estimate.hours(plan, 40.0, 0.0))
    assert seconds == pytest.approx(60 * expected)
