"""Going back to the release before, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from orchestrator.errors import InputError
from orchestrator.promotion import replicas
from orchestrator.promotion.change import Course, Step
from orchestrator.promotion.journal import FULL, Kind, Placed
from orchestrator.promotion.lock import held
from orchestrator.promotion.progress import Progress
from orchestrator.promotion.promote import finish, left_open, settle
from orchestrator.promotion.release import Release
from orchestrator.promotion.site import Site


def outlook(site: Site) -> Sequence[str]:
    """What going back would do. InputError where there is nothing to go back to."""
    standing = site.journal.standing()
    change = standing.change
    if change is not None and change.kind is Kind.PROMOTE and not change.turned:
        serving = standing.serving.release if standing.serving else "nothing"
        return [
            f"rollback  the promotion of {change.new.release}, which is not through, is undone; {serving} serves on"
        ]
    if change is not None and change.kind is Kind.ROLLBACK:
        return [f"rollback  an earlier one to {change.new.release} goes on where it was cut off"]
    leaving, previous = (change.new, standing.serving) if change else (standing.serving, standing.previous)
    if previous is None or leaving is None:
        raise _nothing_before(site)
    warm = change is not None or time.time() < standing.warm_until
    return [
        f"rollback  {site.name} goes from {leaving.release} to {previous.release}, which "
        f"{'is kept warm' if warm else 'was stopped when its warm time was over, and is started first'}",
        f"after     {leaving.release} is drained and stopped; there is nothing to go back to then",
    ]


def _nothing_before(site: Site) -> InputError:
    return InputError(f"{site.name}: there is no release before to go back to")


def rollback(site: Site, progress: Progress, break_lock: bool = False) -> str:
    """Back to the release before; a promotion that is not through yet is undone instead. Returns what serves now.

    InputError where there is nothing to go back to. A warm release takes over at once, a stopped one is started first.
    """
    with held(site.first, site.lock, site.name, break_lock) as owner:
        course = Course(site, owner, progress)
        change = course.standing.change
        if change is not None and change.kind is Kind.PROMOTE and not change.turned:
            course.undo(left_open(course, None))
            return _serves(course)
        if change is None or change.kind is Kind.PROMOTE:
            settle(course, None)
            previous = course.standing.previous
            if previous is None:
                raise _nothing_before(site)
            course.open(Kind.ROLLBACK, previous)
        _carry_out(course)
    return _serves(course)


def _carry_out(course: Course) -> None:
    change, leaving = course.standing.change, course.standing.serving
    assert change is not None
    assert leaving is not None
    release = replicas.release_on(course.site, change.new.release)
    steps = [
        Step("ready", partial(_ready, course, release, change.new), again=True),
        Step(FULL, partial(_turn, course, change.new, leaving)),
        Step("drain", partial(course.drain, leaving)),
    ]
    course.carry_out(release, steps)
    finish(course)


def _ready(course: Course, release: Release, placed: Placed) -> str:
    warm = replicas.healthy(course.site, release, placed)
    if warm:
        replicas.keep(course.site, release, placed)
        warm = replicas.healthy(course.site, release, placed)  # its time may have been over before it was kept
    if not warm:
        replicas.start(course.site, release, placed)
        replicas.wait_ready(course.site, release, placed, course.progress.doing)
    return f"{release.id} {'was warm' if warm else 'was started'}"


def _turn(course: Course, placed: Placed, leaving: Placed) -> str:
    course.site.router.apply(course.routes(placed, leaving))
    return f"all sessions go to {placed.release}"


def _serves(course: Course) -> str:
    serving = course.standing.serving
    return f"{serving.release} serves on {course.site.name}" if serving else f"nothing serves on {course.site.name}"
