"""Rounds of blocks: which units are due after the looks taken so far. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.plan import Plan, Unit, in_order
from orchestrator.records import Look
from orchestrator.spec import BlockSpec, SweepSpec


def horizon(blocks: BlockSpec, looks: Sequence[Look], concurrency: int) -> int:
    """How many blocks are due at a point."""
    last = next((item for item in reversed(looks) if item.concurrency == concurrency), None)
    if last is None:
        return blocks.count
    return last.blocks if last.stop else min(last.blocks + blocks.step, blocks.max)


def given_up(looks: Sequence[Look], concurrency: int) -> dict[str, tuple[int, str]]:
    """Arms that are measured no further at a point: after how many blocks, and why."""
    own = [item for item in looks if item.concurrency == concurrency]
    return {arm: (item.blocks, reason) for item in own for arm, reason in item.dropped.items()}


def due(plan: Plan, looks: Sequence[Look]) -> list[Unit]:
    """The units that the looks so far ask for, in the plan's order. Arms that are left share out the places anew."""
    points = plan.spec.workload.concurrency
    ends = {at: horizon(plan.spec.blocks, looks, at) for at in points}
    out = {at: given_up(looks, at) for at in points}

    def wanted(number: int, unit: Unit) -> Unit:
        gone = {arm for arm, (blocks, _) in out[unit.concurrency].items() if unit.block >= blocks}
        left = tuple(trial for trial in unit.trials if trial.arm.name not in gone)
        return in_order(replace(unit, trials=left), plan.spec, number) if gone else unit

    return [wanted(number, unit) for number, unit in enumerate(plan.units) if unit.block < ends[unit.concurrency]]


def open_points(plan: Plan, looks: Sequence[Look]) -> list[int]:
    """Concurrencies at which blocks may still be added."""
    stopped = {item.concurrency for item in looks if item.stop}
    blocks = plan.spec.blocks
    points = plan.spec.workload.concurrency
    return [at for at in points if at not in stopped and horizon(blocks, looks, at) < blocks.max]


def planned(spec: SweepSpec, looks: Sequence[Look]) -> dict[str, int]:
    """How many trials of each arm are due."""
    trials = dict.fromkeys((arm.label() for arm in spec.expanded_arms()), 0)
    for at in spec.workload.concurrency:
        end, gone = horizon(spec.blocks, looks, at), given_up(looks, at)
        for arm in trials:
            trials[arm] += min(end, gone[arm][0]) if arm in gone else end
    return trials


def remaining(units: Sequence[Unit], finished: set[str]) -> list[Unit]:
    """The units with what they still have to measure, in their order."""
    left = [replace(u, trials=tuple(t for t in u.trials if t.digest not in finished)) for u in units]
    return [unit for unit in left if unit.trials]


def next_of_blocks(units: Sequence[Unit], own: int | None, others: Sequence[int]) -> Unit | None:
    """What a slot takes next when every block has engines of its own: the rest of its block, then a block that no other
    slot is at. Only a slot without a block joins others, where they are fewest: engines that it started for the end of
    a block would be up when those that are there have measured it. `others`: the blocks that the other slots are at.
    """
    mine = [unit for unit in units if unit.block == own]
    free = mine or [unit for unit in units if own is None or unit.block not in others]
    return min(free, key=lambda unit: others.count(unit.block), default=None)


def count(units: Sequence[Unit]) -> int:
    """Trials in all units."""
    return sum(len(unit.trials) for unit in units)
