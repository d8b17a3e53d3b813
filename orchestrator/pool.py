"""The slots of a sweep as the driver sees them: Ray actors that are opened, called, replaced when they die, closed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from engines.base import Arm, Deployment, EngineError, Ranking
from orchestrator.cluster import Choice
from orchestrator.errors import InputError
from orchestrator.leash import GRACE_S
from orchestrator.measure import Measurement, failed
from orchestrator.plan import Trial
from orchestrator.slots import Activity, Slot, slot_options
from orchestrator.store import now
from orchestrator.validity import Limits

_CLOSE_S = GRACE_S + 5
_PATIENCE_S = 15.0


class SlotHandle:
    """One slot. `name` says which GPUs it got, once it is open."""

    def __init__(self, index: int, choice: Choice, limits: Limits) -> None:
        self.label = self.name = f"slot-{index}"
        self._choice = choice
        self._limits = limits
        self._actor: Any = None

    async def open(self) -> None:
        """Create the actor and wait for its resources. EngineError when its GPUs are not the profile's."""
        import ray

        actor_class = ray.remote(Slot).options(**slot_options(self._choice.match))
        self._actor = actor_class.remote(self.label, self._choice.match, self._limits)
        self.name = await self._actor.open.remote()

    async def run(self, trial: Trial) -> Measurement:
        """Measure a trial; one that took the actor with it is a failed one, and the actor is a new one afterwards."""
        import ray

        began = now()
        try:
            measurement: Measurement = await self._actor.run.remote(trial)
        except ray.exceptions.RayActorError:
            measurement = failed(trial, self.name, "the slot's actor died during the trial", began)
            await asyncio.sleep(GRACE_S)  # its engine is gone by then: never a new one beside a dying one
            await self.open()
        return measurement

    async def rankings(self, arm: Arm, deployment: Deployment, prefixes: Sequence[Sequence[int]]) -> list[Ranking]:
        """The best next tokens after prefixes. EngineError when the engine cannot tell."""
        import ray

        try:
            rankings: list[Ranking] = await self._actor.rankings.remote(arm, deployment, prefixes)
        except ray.exceptions.RayActorError as error:
            raise EngineError("the slot's actor died while it was asked for the best next tokens") from error
        except EngineError as error:
            raise EngineError(_said(error)) from error
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
    import ray

    opening = asyncio.create_task(slot.open())
    done, _ = await asyncio.wait({opening}, timeout=_PATIENCE_S)
    if not done:
        say(f"{slot.label} waits for the cluster to have its resources free")
    try:
        await opening
    except EngineError as error:
        return f"{slot.label}: {_said(error)}"
    except ray.exceptions.RayActorError as error:
        return f"{slot.label} cannot start: {str(error).splitlines()[0]}"
    return ""


def _said(error: EngineError) -> str:
    """The message alone: Ray hands on a remote error with its whole traceback for text."""
    return str(getattr(error, "cause", error))
