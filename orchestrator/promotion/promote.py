"""Promoting a release, from what was left open before to what is stopped after."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from orchestrator.errors import InputError
from orchestrator.promotion import canarying, replicas, smoke
from orchestrator.promotion.change import Course, Step
from orchestrator.promotion.errors import PromotionError
from orchestrator.promotion.journal import FULL, Kind, Placed
from orchestrator.promotion.lock import held
from orchestrator.promotion.progress import Progress
from orchestrator.promotion.release import Release
from orchestrator.promotion.site import Site


def promote(site: Site, release: Release, progress: Progress, break_lock: bool = False) -> str:
    """Bring the release to all traffic, or leave the old one serving (PromotionError). Returns what serves now.

    A promotion of the same release that was cut off goes on; what else was left open is cleaned up first.
    """
    with held(site.first, site.lock, site.name, break_lock) as owner:
        course = Course(site, owner, progress)
        settle(course, release)
        serving = course.standing.serving
        if course.standing.change is None and serving and serving.release == release.id:
            return _heal(course, release)
        old = replicas.release_on(site, serving.release) if serving else None
        if course.standing.change is None:
            facts = {name: host.facts(site.root) for name, host in site.hosts.items()}
            course.open(Kind.PROMOTE, Placed(release.id, replicas.place(site, release, course.standing, facts)))
        course.carry_out(release, _steps(course, old, release))
        finish(course)
    return f"{release.name} serves on {site.name}, at http://{site.spec.router.listen}/v1"


def settle(course: Course, wanted: Release | None) -> None:
    """Bring a change that was left open to an end, except a promotion of `wanted` that can go on."""
    change = course.standing.change
    if change is None:
        return
    if change.turned:
        if wanted is None or change.kind is Kind.ROLLBACK or change.new.release != wanted.id:
            course.progress.say(f"an earlier {change.kind} to {change.new.release} is finished first")
            finish(course)
        return
    if wanted and change.kind is Kind.PROMOTE and change.new.release == wanted.id and not change.failed:
        course.progress.say("going on where an earlier promotion of this release stopped")
        return
    course.progress.say(f"an earlier {change.kind} to {change.new.release} was cut off and is undone first")
    course.undo(left_open(course, wanted))


def left_open(course: Course, wanted: Release | None) -> Release | None:
    """The release of the open change; None where it had not come to the target yet."""
    assert course.standing.change is not None
    identifier = course.standing.change.new.release
    if wanted is not None and wanted.id == identifier:
        return wanted
    try:
        return replicas.release_on(course.site, identifier)
    except InputError:
        return None


def finish(course: Course) -> None:
    """Close a change whose new release serves, and stop what is not kept."""
    course.close(time.time() + course.site.spec.warm_for_s)
    course.progress.say(course.expire())


def _steps(course: Course, old: Release | None, new: Release) -> list[Step]:
    change = course.standing.change
    assert change is not None
    site, placed, say = course.site, change.new, course.progress.doing
    steps = [
        Step("upload", partial(_upload, course, new), again=True),
        Step("start", partial(_start, site, new, placed), again=True),
        Step("ready", partial(_ready, site, new, placed, say), again=True),
        Step("smoke", partial(_smoke, site, new, placed)),
    ]
    if old is not None:
        steps = [Step("old release", partial(_restore, course, old), again=True), *steps]
        for wanted in site.spec.canary:
            steps.append(Step(f"canary {wanted.share:g} %", partial(canarying.stage, course, old, new, placed, wanted)))
    steps.append(Step(FULL, partial(_turn, course, placed)))
    if course.standing.serving is not None:
        steps.append(Step("drain", partial(course.drain, course.standing.serving)))
    return steps


def _restore(course: Course, old: Release) -> str:
    """The release that serves has to serve: after a reboot it may not."""
    serving = course.standing.serving
    assert serving is not None
    if not replicas.healthy(course.site, old, serving):
        replicas.start(course.site, old, serving)
        replicas.wait_ready(course.site, old, serving, course.progress.doing)
    course.site.router.apply(course.steady())
    course.site.router.rotate()
    return f"{old.id} serves"


def _heal(course: Course, release: Release) -> str:
    with course.progress.aside("checked") as seen:
        seen.append(_restore(course, release))
    course.progress.say(course.expire())
    return f"{release.name} serves already on {course.site.name}"


def _upload(course: Course, release: Release) -> str:
    """Release and models to every host, under names that are their content."""
    site, sent = course.site, 0
    for name, host in site.hosts.items():
        folders = {Path(place): site.model_folder(found) for found, place in release.models.items()}
        for source, to in {release.folder: site.release_folder(release.id), **folders}.items():
            host.make_folder(to.parent)
            host.upload(source, to, partial(_tell, course.progress.doing, f"{name}: {to.name}"))
            sent += 1
    return f"folders sent: {sent}; digests right on {', '.join(site.hosts)}"


def _tell(doing: Callable[[str], None], what: str, done: int, total: int) -> None:
    doing(f"{what}  {done / 2**20:.0f} of {total / 2**20:.0f} MiB")


def _start(site: Site, release: Release, placed: Placed) -> str:
    replicas.start(site, release, placed)
    return ", ".join(f"{replica.host}:{replica.port}" for replica in placed.replicas)


def _ready(site: Site, release: Release, placed: Placed, say: Callable[[str], None]) -> str:
    replicas.wait_ready(site, release, placed, say)
    where = ", ".join(f"{replica.host}:{replica.port}" for replica in placed.replicas)
    return f"{where} runs what the release says"


def _smoke(site: Site, release: Release, placed: Placed) -> str:
    seen = []
    for replica in placed.replicas:
        with site.endpoint(release, replica) as endpoint:
            try:
                found = asyncio.run(smoke.smoke(release, endpoint, site.spec.smoke.tpot_tolerance))
            except PromotionError as error:
                raise PromotionError(f"{replica.host}:{replica.port}: {error}") from error
        seen.append(found.words())
    return "; ".join(seen)


def _turn(course: Course, placed: Placed) -> str:
    course.site.router.apply(course.routes(placed, course.standing.serving))
    return f"all sessions go to {placed.release}"
