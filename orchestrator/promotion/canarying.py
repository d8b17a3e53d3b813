"""A stage of the canary: a share of the sessions to the new release, and probes to both until its time is over."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from orchestrator.promotion import canary, probes
from orchestrator.promotion.change import Course
from orchestrator.promotion.errors import PromotionError
from orchestrator.promotion.journal import Placed
from orchestrator.promotion.release import Release
from orchestrator.promotion.routes import Canary
from orchestrator.promotion.spec import StageSpec

_LEASE_S = 300
"""How long nginx keeps up a canary that nobody watches any more, beyond its stage."""


def stage(course: Course, old: Release, new: Release, placed: Placed, wanted: StageSpec) -> str:
    """Run one stage. PromotionError as soon as the new release fails more often, and at the end where it is worse."""
    site, rule = course.site, course.site.spec.watch
    since = site.router.clock()
    end, lease, rounds = time.monotonic() + wanted.for_s, 0.0, 0
    seen: dict[str, list[pd.DataFrame]] = {old.id: [], new.id: []}
    while rounds < canary.MIN_ROUNDS or time.monotonic() < end:
        if time.monotonic() > lease - _LEASE_S / 2:
            lease = _route(course, placed, wanted, end)
        course.progress.doing(f"{wanted.share:g} % to {new.id}, round {rounds + 1} of probes to both")
        for release, answers in asyncio.run(_round(course, old, new, rounds)).items():
            seen[release].append(answers)
        _check_probes(new.id, seen[new.id][-1])
        rounds += 1
        _check_errors(course, old, new, since)
    findings = canary.compare(_all(seen[old.id]), _all(seen[new.id]), rule)
    if worse := canary.worst(findings):
        raise PromotionError(f"worse than {old.id} by more than {100 * rule.margin:g} %: {worse}")
    requests = canary.count_errors(site.router.requests(since), new.id).requests
    means = [finding.words() for finding in findings if "p90" not in finding.metric]
    return "; ".join([f"{requests} requests", *(means or [f"{old.id} answered too few probes to be compared with"])])


def _route(course: Course, placed: Placed, wanted: StageSpec, end: float) -> float:
    """Bring the share into force with a lease. Returns when that ends, by time.monotonic()."""
    left = max(0.0, end - time.monotonic()) + _LEASE_S
    until = int(course.site.router.clock() + left)
    course.site.router.apply(replace(course.steady(), canary=Canary(course.site.group(placed), wanted.share, until)))
    return time.monotonic() + left


async def _round(course: Course, old: Release, new: Release, number: int) -> dict[str, pd.DataFrame]:
    """The probes through the router to both releases, one after the other, in an order drawn for the round."""
    order = [old, new]
    random.Random(number).shuffle(order)
    found = {}
    for release in order:
        with course.site.front(release) as endpoint:
            answers = await probes.ask(release, endpoint, new.record)
        found[release.id] = answers.assign(round=number)
    return found


def _check_probes(release: str, answers: pd.DataFrame) -> None:
    """Some failures are seen by the client alone, such as an error in the middle of a stream."""
    failed = answers[~answers["ok"]]
    if len(failed):
        row = failed.iloc[0]
        raise PromotionError(f"a probe failed on {release}: {row.prompt_id}: {row.error}")


def _check_errors(course: Course, old: Release, new: Release, since: float) -> None:
    log = course.site.router.requests(since)
    before, after = (canary.count_errors(log, release.id) for release in (old, new))
    if reason := canary.more_errors(before, after, course.site.spec.watch):
        raise PromotionError(reason)


def _all(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(frames, ignore_index=True)
