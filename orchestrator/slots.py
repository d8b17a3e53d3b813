"""A slot: the Ray actor that holds a share of a node, and in it at most one engine.

The engine stays up between trials that can share it and is replaced after any trial that does not count. Everything
heavy is imported here, inside the actor's process.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from engines.base import Arm, Deployment, EngineError, Ranking
from engines.messages import one_line
from engines.registry import get_engine
from orchestrator import gpus, process
from orchestrator.cluster import GIB
from orchestrator.measure import Measurement, cause, failed, measure
from orchestrator.plan import Trial
from orchestrator.process import EngineProcess
from orchestrator.records import TrialState
from orchestrator.spec import MatchSpec
from orchestrator.store import now
from orchestrator.validity import Limits

ENGINE_FAILURES = (EngineError, aiohttp.ClientError, OSError, TimeoutError)


@dataclass(frozen=True)
class Activity:
    """What a slot is doing. `since` is time.time()'s."""

    what: str
    since: float


class Slot:
    """Runs trials one at a time. The driver puts it behind Ray with `slot_options`."""

    def __init__(self, name: str, match: MatchSpec, limits: Limits) -> None:
        self.name = name
        self._match = match
        self._limits = limits
        self._cards: list[gpus.Card] = []
        self._process: EngineProcess | None = None
        self._activity = Activity("idle", time.time())

    async def open(self) -> str:
        """Check the GPUs that Ray gave against the profile. Returns the slot's full name; EngineError for others."""
        self._cards = gpus.given(_gpu_ids()) if self._match.gpus else []
        check_cards(self._cards, self._match)
        if self._cards:
            self.name += " " + ", ".join(f"{card.name} {card.uuid}" for card in self._cards)
        return self.name

    async def run(self, trial: Trial) -> Measurement:
        """Measure a trial. An engine that fails makes it `failed` or `invalid` with the reason, and is stopped."""
        began, mark = now(), 0
        try:
            self._doing("starting the engine")
            mark = await self._bring_up(trial.arm, trial.deployment)
            assert self._process is not None
            uuids = [card.uuid for card in self._cards]
            measurement = await measure(self._process, trial, self.name, self._limits, uuids, self._doing)
        except ENGINE_FAILURES as error:
            measurement = failed(trial, self.name, await self._why(error), began)
        measurement = measurement.with_log(self._process.log.read(mark) if self._process else b"")
        if measurement.record.state is not TrialState.VALID:
            await self.close()
        self._doing("idle")
        return measurement

    async def rankings(self, arm: Arm, deployment: Deployment, prefixes: Sequence[Sequence[int]]) -> list[Ranking]:
        """The target's best next tokens after each prefix, from the arm's engine. EngineError when it cannot tell."""
        self._doing("asking for the best next tokens")
        try:
            await self._bring_up(arm, deployment)
            assert self._process is not None
            engine, endpoint = self._process.engine, self._process.endpoint
            await engine.configure(endpoint, arm)
            return [await engine.ranking(endpoint, list(prefix)) for prefix in prefixes]
        except ENGINE_FAILURES as error:
            reason = await self._why(error)
            await self.close()
            raise EngineError(reason) from error
        finally:
            self._doing("idle")

    async def activity(self) -> Activity:
        """What is going on, also while a trial runs."""
        return self._activity

    async def close(self) -> None:
        """Stop the engine, if there is one."""
        if self._process is not None:
            stopping, self._process = self._process, None
            await stopping.stop()

    async def _bring_up(self, arm: Arm, deployment: Deployment) -> int:
        """Have an engine running that can serve the arm. Returns where its log goes on."""
        engine = get_engine(arm.engine)
        wanted = process.key(engine, arm, deployment)
        running = self._process
        if running and running.key == wanted and running.exit_code() is None:
            return running.log.size
        await self.close()
        self._process = process.spawn(engine, arm, deployment)
        await process.until_ready(self._process, deployment.ready_timeout_s)
        return 0

    async def _why(self, error: BaseException) -> str:
        """The engine's death where that is behind the error, else the error itself."""
        reason = one_line(str(error)) or type(error).__name__
        return await cause(self._process, reason) if self._process else reason

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
