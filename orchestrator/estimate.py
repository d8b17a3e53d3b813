"""What a plan would take of one slot, before anything runs. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from engines.registry import get_engine
from orchestrator import process
from orchestrator.plan import Plan, Trial, Unit


def engine_starts(plan: Plan) -> int:
    """Engine starts of one slot that does all of a plan's blocks, without the equivalence gate's and repeated trials.

    Blocks that may be added are another round, which begins without engines.
    """
    blocks, limit = plan.spec.blocks, plan.spec.profiles[plan.profile].resident
    sure = [unit for unit in plan.units if unit.block < blocks.count]
    added = [unit for unit in plan.units if unit.block >= blocks.count]
    return sum(starts(units, limit, blocks.restart) for units in (sure, added))


def starts(units: Sequence[Unit], limit: int, restart: bool) -> int:
    """Of one slot that works through the units and keeps `limit` engines up. `restart`: as in `BlockSpec`."""
    up: list[process.Key] = []  # the one used longest ago first
    count = 0
    for before, unit in zip([None, *units], units, strict=False):
        if restart and before is not None and before.block != unit.block:
            up.clear()
        for trial in unit.trials:
            wanted = process.key(get_engine(trial.arm.engine), trial.arm, trial.deployment)
            count += wanted not in up
            up = [*(key for key in up if key != wanted), wanted][-limit:]
    return count


def hours(plan: Plan, tok_s: float, start_s: float) -> float:
    """Hours of one slot at `tok_s` tokens/s of a request and `start_s` seconds of an engine start."""
    return (sum(_longest(trial, tok_s) for trial in plan.trials) + engine_starts(plan) * start_s) / 3600


def _longest(trial: Trial, tok_s: float) -> float:
    """Seconds of a trial whose answers all have their full length; an open loop lasts as long as its arrivals."""
    busy = len(trial.prompts) * trial.workload.max_tokens / trial.concurrency / tok_s
    return max(busy, trial.arrivals[-1].at if trial.arrivals else 0.0)
