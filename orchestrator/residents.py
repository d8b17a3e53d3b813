"""The engines that a slot keeps up: as many as its profile allows, the one used longest ago making room.

With one, an arm waits for its engine each time that it follows another. With several, arms can alternate at the price
of an engine start each, and of memory that they share. Only one is ever measured at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from engines.base import Arm, Deployment
from engines.messages import one_line
from engines.registry import get_engine
from orchestrator import process
from orchestrator.process import EngineProcess


class Residents:
    """Engines by what two trials must share to share one. `index` is the slot's number on its node."""

    def __init__(self, limit: int, index: int) -> None:
        self._limit = limit
        self._index = index
        self._engines: dict[process.Key, EngineProcess] = {}
        self.current: EngineProcess | None = None
        """The engine that was asked for last, also where it did not get ready."""

    async def bring_up(self, arm: Arm, deployment: Deployment) -> tuple[EngineProcess, int]:
        """An engine that can serve the arm, ready, and where its log goes on. EngineError where it does not get ready:
        the engine then stays here, for its log, until it is stopped.
        """
        self.current = None
        engine = get_engine(arm.engine)
        wanted = process.key(engine, arm, deployment)
        running = self._engines.pop(wanted, None)
        if running is not None and running.exit_code() is None:
            self._engines[wanted] = self.current = running  # the last used, from now on
            return running, running.log.size
        if running is not None:
            await running.stop()
        while len(self._engines) >= self._limit:
            await self.stop(next(iter(self._engines.values())))
        started = self._engines[wanted] = self.current = process.spawn(engine, arm, deployment, self._index)
        await process.until_ready(started, deployment.ready_timeout_s)
        return started, 0

    async def bring_up_together(self, arms: Sequence[tuple[Arm, Deployment]]) -> list[str]:
        """Start the engines of the first arms side by side, as many as there is room for. One that does not get ready
        is stopped, and told of in a line: the trial that needs it starts it again.
        """
        first = {process.key(get_engine(arm.engine), arm, where): (arm, where) for arm, where in arms}
        pairs = dict(list(first.items())[: self._limit])
        results = await asyncio.gather(*(self.bring_up(*pair) for pair in pairs.values()), return_exceptions=True)
        lines = []
        for (key, (arm, _)), result in zip(pairs.items(), results, strict=True):
            if isinstance(result, BaseException):
                reason = one_line(str(result)) or type(result).__name__
                lines.append(f"{arm.name} did not get ready beside the others: {reason}")
                if key in self._engines:
                    await self.stop(self._engines[key])
        return lines

    async def stop(self, engine: EngineProcess) -> None:
        self._engines.pop(engine.key, None)
        self.current = None if self.current is engine else self.current
        await engine.stop()

    async def stop_all(self) -> None:
        await asyncio.gather(*(self.stop(engine) for engine in list(self._engines.values())))
