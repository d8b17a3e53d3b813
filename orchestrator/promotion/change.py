"""Carrying out a change step by step, and undoing it. The state machine is drawn in journal.py."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engines.base import EngineError
from engines.messages import one_line
from orchestrator.errors import InputError
from orchestrator.promotion import replicas
from orchestrator.promotion.errors import PromotionError
from orchestrator.promotion.host import HostError
from orchestrator.promotion.journal import Change, Entry, Kind, Mark, Placed, Standing, entry
from orchestrator.promotion.lock import Owner
from orchestrator.promotion.progress import Progress
from orchestrator.promotion.release import Release
from orchestrator.promotion.routes import Routes
from orchestrator.promotion.site import Site
from orchestrator.times import now

FAILURES = (PromotionError, HostError, EngineError, InputError, OSError, KeyboardInterrupt)
_POLL_S = 0.5


@dataclass(frozen=True)
class Step:
    """One idempotent step. `act` returns what it saw. `again`: done also where it was done before a death."""

    name: str
    act: Callable[[], str]
    again: bool = False


@dataclass
class Course:
    """A target in the hands of the owner of its lock: the standing, and everything that moves it."""

    site: Site
    owner: Owner
    progress: Progress

    def __post_init__(self) -> None:
        self.standing: Standing = self.site.journal.standing()

    def open(self, kind: Kind, placed: Placed) -> Change:
        """Begin a change: from here on somebody has to close or undo it."""
        change = Change(secrets.token_hex(4), kind, placed)
        self._write(entry(change, Mark.OPEN, owner=self.owner.words(), replicas=placed.replicas))
        return change

    def carry_out(self, release: Release, steps: Sequence[Step]) -> None:
        """Do the steps of the open change that are not done. A failure before `full` undoes everything and is a
        PromotionError; after it the new release serves, and the same command finishes the rest."""
        change = self._change()
        self.progress.total = len(steps)
        for step in steps:
            if step.name in change.done and not step.again:
                self.progress.skipped(step.name)
                continue
            try:
                self._do(change, step)
            except BaseException as error:
                self._failed(step, error, release)

    def close(self, warm_until: float = 0.0) -> None:
        self._write(entry(self._change(), Mark.CLOSED, warm_until=warm_until))

    def undo(self, release: Release | None) -> None:
        """Everything to the old release, the new one away. Also finishes an undoing that was interrupted.

        `release` is None for one that never came to the target as a whole: none of its replicas was started.
        """
        change, serving = self._change(), self.standing.serving
        with self.progress.aside("undone") as seen:
            if serving is None:
                self.site.router.close()
            else:
                self.site.router.apply(self.steady())
            self.drain(change.new)
            if release is not None and release.id not in self.standing.known:
                replicas.remove(self.site, release, change.new.replicas)
            elif release is not None:  # it was started for good
                left = self.standing.warm_until - time.time()
                replicas.expire(self.site, release, change.new, max(0.0, left))
            seen.append(f"{serving.release} serves" if serving else "nothing serves, as before")
        self._write(entry(change, Mark.UNDONE))

    def steady(self) -> Routes:
        """The routes where no canary is out: before the turn the old release's, after it the new one's."""
        standing = self.standing
        assert standing.serving is not None
        if standing.change is not None and standing.change.turned:
            return self.routes(standing.change.new, standing.serving)
        return self.routes(standing.serving, standing.previous)

    def routes(self, stable: Placed, spare: Placed | None = None) -> Routes:
        """All sessions to one release; `spare` takes over what it cannot answer, and what is pinned to it."""
        spares = (self.site.group(spare),) if spare else ()
        return Routes(
            target=self.site.name,
            stable=self.site.group(stable),
            pinned=spares,
            spares=tuple(server for group in spares for server in group.servers),
        )

    def drain(self, placed: Placed) -> str:
        """Wait until nothing that a release is answering is left, at most `drain_s`. Nothing is cut either way."""
        servers = self.site.group(placed).servers
        deadline = time.monotonic() + self.site.spec.drain_s
        while (left := self.site.router.in_flight(servers)) and time.monotonic() < deadline:
            self.progress.doing(f"{left} requests are still being answered by {placed.release}")
            time.sleep(_POLL_S)
        return f"{left} requests go on at {placed.release}" if left else f"{placed.release} is idle"

    def expire(self) -> str:
        """Stop the previous release once its warm time is over, and whatever else runs and is not served."""
        standing = self.standing
        warm = standing.previous if time.time() < standing.warm_until else None
        keep = {placed.release for placed in (standing.serving, warm) if placed}
        leaving = [placed for placed in standing.known.values() if placed.release not in keep]
        self._limit_warm()
        if not leaving or standing.serving is None:
            return f"{warm.release} stays warm" if warm else "nothing else runs"
        self.site.router.apply(self.routes(standing.serving, warm))
        for placed in leaving:
            self._retire(placed)
        return f"{', '.join(placed.release for placed in leaving)} stopped"

    def _limit_warm(self) -> None:
        """Have the previous release stop by itself when its warm time is over, whoever lives then."""
        previous, left = self.standing.previous, self.standing.warm_until - time.time()
        if previous is not None and left > 0:
            replicas.expire(self.site, replicas.release_on(self.site, previous.release), previous, left)

    def _retire(self, placed: Placed) -> None:
        """Stop a release that nothing is routed to and remove its replicas. It can be promoted again."""
        release = replicas.release_on(self.site, placed.release)
        self.drain(placed)
        replicas.remove(self.site, release, placed.replicas)
        self._write(Entry(time=now(), change="", kind=Kind.PROMOTE, release=placed.release, mark=Mark.RETIRED))

    def _do(self, change: Change, step: Step) -> None:
        self._write(entry(change, Mark.BEGUN, step.name))
        with self.progress.step(step.name) as seen:
            seen.append(step.act())
        self._write(entry(change, Mark.DONE, step.name))

    def _failed(self, step: Step, error: BaseException, release: Release) -> None:
        """Undo, unless the new release serves already. Always raises."""
        reason = "interrupted" if isinstance(error, KeyboardInterrupt) else one_line(str(error)) or type(error).__name__
        change = self._change()
        if change.turned:
            raise PromotionError(
                f"{step.name}: {reason}; {release.id} serves all the same: the same command finishes the rest"
            ) from error
        self.progress.say(f"{step.name} failed: {reason}")
        try:
            self._write(entry(change, Mark.FAILED, step.name, reason=reason))
            self.undo(release)
        except FAILURES as second:
            why = one_line(str(second)) or type(second).__name__
            raise PromotionError(
                f"{step.name}: {reason}; and undoing it failed: {why}. What nginx serves is as it was; "
                "the same command cleans up"
            ) from second
        if isinstance(error, KeyboardInterrupt) or not isinstance(error, FAILURES):
            raise error
        raise PromotionError(f"{step.name}: {reason}; {self._who_serves()}") from error

    def _who_serves(self) -> str:
        serving = self.standing.serving
        return f"{serving.release} serves as before" if serving else "nothing serves, as before"

    def _change(self) -> Change:
        assert self.standing.change is not None
        return self.standing.change

    def _write(self, written: Entry) -> None:
        self.site.journal.add(written)
        self.standing = self.site.journal.standing()
