"""The slots of a sweep as the driver sees them: Ray actors that are opened, called, replaced when they die, closed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

from engines.base import Arm, Deployment, EngineError, Ranking
from engines.messages import one_line
from orchestrator.cluster import Choice
from orchestrator.errors import InputError
from orchestrator.leash import GRACE_S
from orchestrator.measure import Measurement, failed
from orchestrator.plan import Trial
from orchestrator.slots import Activity, Slot, slot_options
from orchestrator.times import now
from orchestrator.validity import Limits

_CLOSE_S = GRACE_S + 5
_PATIENCE_S = 15.0
_REOPEN_S = 120.0
"""How long a lost actor's resources may take to come back."""


class SlotLostError(EngineError):
    """The slot can run nothing more; the message is one line for the user."""


class SlotHandle:
    """One slot. `name` says which GPUs it got, once it is open."""

    def __init__(self, index: int, choice: Choice, limits: Limits) -> None:
        self.label = self.name = f"slot-{index}"
        self._index = index
        self._choice = choice
        self._limits = limits
        self._actor: Any = None

    async def open(self) -> None:
        """Create the actor and wait for its resources. EngineError when it cannot start or its GPUs are not the
        profile's."""
        import ray

        actor_class = ray.remote(Slot).options(**slot_options(self._choice.match))
        with _heard("the slot's actor cannot start"):
            choice = self._choice
            self._actor = actor_class.remote(self.label, choice.match, self._limits, self._index, choice.resident)
            self.name = await self._actor.open.remote()

    async def prepare(self, arms: Sequence[tuple[Arm, Deployment]]) -> list[str]:
        """Have new engines of these arms up, as many as the profile lets stay, and no older one. A line for each that
        did not get ready. An actor that dies of it is a new one afterwards; SlotLostError when there can be no new one.
        """
        try:
            with _heard("the slot's actor died while it started its engines"):
                lines: list[str] = await self._actor.prepare.remote(arms)
        except EngineError as error:
            await self._replace(str(error))
            return [str(error)]
        return lines

    async def run(self, trial: Trial) -> Measurement:
        """Measure a trial; one that took the actor with it is a failed one, and the actor is a new one afterwards.

        SlotLostError when there can be no new one.
        """
        began = now()
        try:
            with _heard("the slot's actor died during the trial"):
                measurement: Measurement = await self._actor.run.remote(trial)
        except EngineError as error:
            measurement = failed(trial, self.name, str(error), began)
            await self._replace(str(error))
        return measurement

    async def _replace(self, reason: str) -> None:
        import ray

        ray.kill(self._actor)
        await asyncio.sleep(GRACE_S)  # its engine is gone by then: never a new one beside a dying one
        try:
            async with asyncio.timeout(_REOPEN_S):
                await self.open()
        except (TimeoutError, EngineError) as error:
            ray.kill(self._actor)
            why = str(error) or f"its resources did not come back within {_REOPEN_S:g} s"
            raise SlotLostError(f"{reason}; {why}") from error

    async def rankings(self, arm: Arm, deployment: Deployment, prefixes: Sequence[Sequence[int]]) -> list[Ranking]:
        """The best next tokens after prefixes. EngineError when the engine cannot tell."""
        with _heard("the slot's actor died while it was asked for the best next tokens"):
            rankings: list[Ranking] = await self._actor.rankings.remote(arm, deployment, prefixes)
        return rankings

    async def activity(self) -> Activity:
        activity: Activity = await self._actor.activity.remote()
        return activity

    async def close(self) -> None:
        """Stop the engine, then the actor; at once where it does not answer."""
        import ray

        if self._actor is None:
            return
        with contextlib.suppress(TimeoutError, ray.exceptions.RayError):
            async with asyncio.timeout(_CLOSE_S):
                await self._actor.close.remote()
        ray.kill(self._actor)


@contextlib.asynccontextmanager
async def open_slots(
    choice: Choice, count: int, limits: Limits, say: Callable[[str], None]
) -> AsyncIterator[list[SlotHandle]]:
    """Up to `count` open slots, closed at the end. `say` hears why a slot is left out; InputError when all are."""
    slots = [SlotHandle(index, choice, limits) for index in range(count)]
    try:
        reasons = await asyncio.gather(*(_open(slot, say) for slot in slots))
        for reason in filter(None, reasons):
            say(f"left out: {reason}")
        usable = [slot for slot, reason in zip(slots, reasons, strict=True) if not reason]
        if not usable:
            raise InputError(f"profile {choice.profile}: no slot can be used: {reasons[0]}")
        yield usable
    finally:
        await asyncio.gather(*(slot.close() for slot in slots))


async def _open(slot: SlotHandle, say: Callable[[str], None]) -> str:
    """Open a slot. Returns why it cannot be used; empty when it can."""
    opening = asyncio.create_task(slot.open())
    done, _ = await asyncio.wait({opening}, timeout=_PATIENCE_S)
    if not done:
        say(f"{slot.label} waits for the cluster to have its resources free")
    try:
        await opening
    except EngineError as error:
        return f"{slot.label}: {error}"
    return ""


@contextlib.contextmanager
def _heard(lost: str) -> Iterator[None]:
    """An EngineError of one line for the actor's own and, after `lost`, for whatever keeps Ray from running it.

    Any other error in the actor is a fault of ours and keeps its traceback.
    """
    import ray

    try:
        yield
    except EngineError as error:  # Ray hands on a remote error with its whole traceback for text
        raise EngineError(one_line(str(getattr(error, "cause", error)))) from error
    except ray.exceptions.RayTaskError:
        raise
    except ray.exceptions.RayError as error:
        raise EngineError(f"{lost}: {_headline(error)}") from error


def _headline(error: Exception) -> str:
    """The first line of Ray's long explanations."""
    return next(filter(None, map(one_line, str(error).splitlines())), type(error).__name__).rstrip(".")
