"""Looks between rounds of blocks: what follows from the blocks measured so far, written down before it takes effect.

A look once taken stands, also for a sweep that is resumed: the half that it did not see may only be read by the
decision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pandas as pd

from orchestrator.decision import bad_trials, rankable
from orchestrator.plan import Plan, Unit
from orchestrator.records import Look, TrialRecord
from orchestrator.rounds import due, given_up, horizon, open_points, remaining
from orchestrator.stopping import look
from orchestrator.store import RunStore, writing
from orchestrator.times import now


def next_round(plan: Plan, store: RunStore, failed: Mapping[str, str], say: Callable[[str], None]) -> list[Unit]:
    """Take a look at every open point, write it down, and return the units that it adds."""
    looks = store.looks()
    before = {trial.digest for unit in due(plan, looks) for trial in unit.trials}
    trials, requests = store.trials.records(), store.trials.requests()
    for concurrency in open_points(plan, looks):
        taken = take_look(plan, concurrency, looks, trials, requests, failed)
        if isinstance(taken, str):
            say(f"no look at {concurrency}, and no more blocks: {taken}")
            continue
        with writing(store.folder):
            store.look(taken)
        say(sentence(taken))
    return remaining(due(plan, store.looks()), before | store.finished())


def take_look(
    plan: Plan,
    concurrency: int,
    looks: Sequence[Look],
    trials: Sequence[TrialRecord],
    requests: pd.DataFrame,
    failed: Mapping[str, str],
) -> Look | str:
    """What follows from the blocks measured at a point; or in a line why nothing can.

    `failed`: arms that did not pass the equivalence gate, with the reason. They are measured no further, but for those
    with a bad trial: a resumed sweep may yet measure that one, and what the gate saw was not all.
    """
    rule, blocks = plan.spec.selection, plan.spec.blocks
    bad = bad_trials(due(plan, looks), trials)
    found, excluded = rankable(plan, concurrency, requests, bad, failed, looks)
    if found is None or rule.baseline in excluded:
        return f"the baseline {rule.baseline} is out ({excluded.get(rule.baseline, 'it was not measured')})"
    if len(found.arms) < 2:
        return "no other arm can be ranked"
    view = look(found, [arm.name for arm in found.arms].index(rule.baseline), rule, blocks)
    spared = given_up(looks, concurrency).keys() | {arm for arm, _, _ in bad}
    gone = {arm: reason for arm, reason in failed.items() if arm not in spared}
    return Look(
        time=now(),
        concurrency=concurrency,
        blocks=horizon(blocks, looks, concurrency),
        candidate=view.candidate,
        half_width=view.half_width,
        dropped=gone | view.dropped,
        stop=view.stop,
    )


def sentence(taken: Look) -> str:
    """A look in one line."""
    width = "" if taken.half_width is None else f", known to +-{100 * taken.half_width:.1f} %"
    leads = f"{taken.candidate} leads{width}" if taken.candidate else "too few blocks to tell"
    gone = "".join(f"; {arm} is dropped: {reason}" for arm, reason in taken.dropped.items())
    next_step = f"no more blocks ({taken.stop})" if taken.stop else "more blocks"
    return f"look after {taken.blocks} blocks at {taken.concurrency}: {leads}; {next_step}{gone}"
