"""A slot: the Ray actor that holds a share of a node, and in it the engines that its profile lets stay up.

An engine stays up between trials that can share it. It is replaced after a trial that does not count, unless only the
machine was disturbed: a large engine takes minutes to start. Everything heavy is imported here, in the actor's process.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engines.base import Arm, Deployment, EngineError, Ranking
from engines.messages import one_line
from orchestrator import gpus, hardware
from orchestrator.cluster import GIB
from orchestrator.measure import Measurement, cause, failed, measure
from orchestrator.plan import Trial
from orchestrator.records import TrialState
from orchestrator.residents import Residents
from orchestrator.spec import MatchSpec
from orchestrator.times import now
from orchestrator.validity import Limits

ENGINE_FAILURES = (EngineError, OSError, TimeoutError)


@dataclass(frozen=True)
class Activity:
    """What a slot is doing. `since` is time.time()'s."""

    what: str
    since: float


class Slot:
    """Runs trials one at a time. The driver puts it behind Ray with `slot_options`."""

    def __init__(self, name: str, match: MatchSpec, limits: Limits, index: int = 0, resident: int = 1) -> None:
        self.name = name
        self._match = match
        self._limits = limits
        self._cards: list[gpus.Card] = []
        self._hardware: dict[str, object] = {}
        self._residents = Residents(resident, index)
        self._activity = Activity("idle", time.time())

    async def open(self) -> str:
        """Check the GPUs that Ray gave against the profile. Returns the slot's full name; EngineError for others."""
        self._cards = gpus.given(_gpu_ids()) if self._match.gpus else []
        check_cards(self._cards, self._match)
        self._hardware = hardware.describe([card.uuid for card in self._cards])
        if self._cards:
            self.name += " " + ", ".join(f"{card.name} {card.uuid}" for card in self._cards)
        return self.name

    async def prepare(self, arms: Sequence[tuple[Arm, Deployment]]) -> list[str]:
        """Have new engines of these arms up, as many as may stay, and no older one. A line for each not ready."""
        self._doing("stopping the engines")
        await self._residents.stop_all()
        self._doing("starting the engines")
        lines = await self._residents.bring_up_together(arms)
        self._doing("idle")
        return lines

    async def run(self, trial: Trial) -> Measurement:
        """Measure a trial. An engine that fails, whenever it does, makes it invalid with the reason, and is stopped."""
        began, mark = now(), 0
        try:
            self._doing("starting the engine")
            process, mark = await self._residents.bring_up(trial.arm, trial.deployment)
            uuids = [card.uuid for card in self._cards]
            measurement = await measure(process, trial, self.name, self._limits, uuids, self._doing)
        except ENGINE_FAILURES as error:
            measurement = failed(trial, self.name, await self._why(error), began, TrialState.INVALID)
        used = self._residents.current
        measurement = measurement.on(self._hardware, used.log.read(mark) if used else b"")
        if measurement.record.state is not TrialState.VALID and not measurement.disturbed and used is not None:
            await self._residents.stop(used)
        self._doing("idle")
        return measurement

    async def rankings(self, arm: Arm, deployment: Deployment, prefixes: Sequence[Sequence[int]]) -> list[Ranking]:
        """The target's best next tokens after each prefix, from the arm's engine. EngineError when it cannot tell."""
        self._doing("asking for the best next tokens")
        try:
            process, _ = await self._residents.bring_up(arm, deployment)
            engine, endpoint = process.engine, process.endpoint
            await engine.configure(endpoint, arm)
            return [await engine.ranking(endpoint, list(prefix)) for prefix in prefixes]
        except ENGINE_FAILURES as error:
            reason = await self._why(error)
            if used := self._residents.current:
                await self._residents.stop(used)
            raise EngineError(reason) from error
        finally:
            self._doing("idle")

    async def activity(self) -> Activity:
        """What is going on, also while a trial runs."""
        return self._activity

    async def close(self) -> None:
        """Stop the engines."""
        await self._residents.stop_all()

    async def _why(self, error: BaseException) -> str:
        """The engine's death where that is behind the error, else the error itself."""
        reason, used = one_line(str(error)) or type(error).__name__, self._residents.current
        return await cause(used, reason) if used else reason

    def _doing(self, what: str) -> None:
        self._activity = Activity(what, time.time())


def _gpu_ids() -> list[str]:
    import ray

    return [str(identifier) for identifier in ray.get_runtime_context().get_accelerator_ids()["GPU"]]


def check_cards(cards: Sequence[gpus.Card], match: MatchSpec) -> None:
    """Raise EngineError unless these are the profile's GPUs: Ray labels a node by its first GPU only."""
    if len(cards) != match.gpus:
        raise EngineError(f"the slot was given {len(cards)} GPUs, the profile says {match.gpus}")
    for card in cards:
        if match.accelerator and card.accelerator != match.accelerator:
            raise EngineError(f"the slot was given {card.name} ({card.uuid}), the profile says {match.accelerator}")


def slot_options(match: MatchSpec) -> dict[str, Any]:
    """What Ray must reserve for a slot."""
    options: dict[str, Any] = {
        "num_cpus": match.cpus,
        "memory": int(match.memory_gib * GIB),
        "num_gpus": match.gpus,
        "scheduling_strategy": "SPREAD",
        "max_concurrency": 8,
        "max_restarts": 0,
    }
    if match.accelerator:
        options["accelerator_type"] = match.accelerator
    return options
