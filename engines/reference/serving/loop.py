"""The decode loop: one thread owns the engine, asyncio owns the requests, and neither waits by polling.

Commands go to the thread through a queue and run between two steps; each step's tokens come back in one hand-over.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Protocol, TypeVar

from engines.reference.decoding.request import DraftTree, Emission, GenerationRequest, Method, SpecStats, StageTimes
from engines.reference.serving.outcomes import BusyError, DeadError, FullError, Gone, LoadingError, RefusedError
from engines.reference.serving.served import Loaded, ServedModel
from engines.reference.serving.ticket import Ticket

T = TypeVar("T")

_DEAD = "the engine has stopped after a fault"


class DecodingEngine(Protocol):
    """What the loop needs of the engine. Used by one thread only."""

    def submit(self, request: GenerationRequest) -> None:
        """Queue a request. ValueError where it can never run."""

    def cancel(self, request_id: str) -> None:
        """Forget a request; unknown ids are ignored."""

    def step(self) -> list[Emission]:
        """Run one prefill or decode step."""

    def has_work(self) -> bool:
        """Whether a request waits or runs."""

    def set_method(self, method: Method) -> None:
        """Change how tokens are decoded, while idle. ValueError where the engine cannot."""

    def record(self, request: GenerationRequest, steps: int) -> list[DraftTree]:
        """The draft trees of a request's first verify steps, while idle. ValueError where the engine cannot."""

    def stats(self) -> SpecStats:
        """Counters since the start."""

    def stage_times(self) -> StageTimes:
        """Stage times since the start."""


class LoopState(StrEnum):
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True)
class _Command:
    action: Callable[[DecodingEngine], Any]
    settle: Callable[[Any, Exception | None], None]


class DecodeLoop:
    """Runs `load()` and then the engine it returns, in a thread. All methods belong to the asyncio thread.

    At most `limit` requests run or wait. `on_end(state before, error)` tells that loading failed or the engine died.
    """

    def __init__(
        self,
        load: Callable[[], Loaded],
        limit: int,
        on_ready: Callable[[], None],
        on_end: Callable[[LoopState, Exception], None],
    ) -> None:
        self.state = LoopState.LOADING
        self.model: ServedModel
        self._load = load
        self._limit = limit
        self._on_ready = on_ready
        self._on_end = on_end
        self._commands: queue.SimpleQueue[_Command | None] = queue.SimpleQueue()
        self._tickets: dict[str, Ticket] = {}
        self._asyncio: asyncio.AbstractEventLoop
        self._thread = threading.Thread(target=self._run, name="decode", daemon=True)

    def start(self) -> None:
        self._asyncio = asyncio.get_running_loop()
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """End the thread after its current step; False where it did not end within `timeout` seconds."""
        self._commands.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def running(self) -> int:
        """Requests submitted and not finished, waiting ones included."""
        return len(self._tickets)

    def submit(self, request: GenerationRequest) -> Ticket:
        """Hand a request to the engine. Raises LoadingError, DeadError or FullError."""
        self.check_ready()
        if len(self._tickets) >= self._limit:
            raise FullError(f"{len(self._tickets)} requests are running or waiting, the most this server holds")
        ticket = self._tickets[request.request_id] = Ticket(request.request_id, self._cancel)
        self._put(lambda engine: engine.submit(request), partial(self._submitted, request.request_id))
        return ticket

    async def call(self, action: Callable[[DecodingEngine], T]) -> T:
        """What `action(engine)` returns, run between two steps. Its ValueError becomes RefusedError."""
        self.check_ready()
        future: asyncio.Future[T] = self._asyncio.create_future()
        self._put(action, partial(_settle, future))
        return await future

    async def call_idle(self, action: Callable[[DecodingEngine], T]) -> T:
        """The same on an idle engine. BusyError while a request runs."""
        if self._tickets:
            raise BusyError(f"{len(self._tickets)} requests are running; this is possible only while none is")
        # Later requests queue up behind this command, so the engine is still idle when it runs.
        return await self.call(action)

    def check_ready(self) -> None:
        """Raise LoadingError or DeadError."""
        if self.state is LoopState.LOADING:
            raise LoadingError("the model is still loading")
        if self.state is LoopState.FAILED:
            raise DeadError(_DEAD)

    def _put(self, action: Callable[[DecodingEngine], Any], settle: Callable[[Any, Exception | None], None]) -> None:
        self._commands.put(_Command(action, settle))

    def _cancel(self, request_id: str) -> None:
        ticket = self._tickets.pop(request_id, None)
        if ticket is not None:
            ticket.put(Gone())
            self._put(lambda engine: engine.cancel(request_id), lambda result, error: None)

    def _submitted(self, request_id: str, _: None, error: Exception | None) -> None:
        ticket = self._tickets.pop(request_id, None) if error is not None else None
        if ticket is not None and error is not None:
            ticket.put(error)

    def _deliver(self, emissions: list[Emission]) -> None:
        for emission in emissions:
            ticket = self._tickets.get(emission.request_id)
            if ticket is None:
                continue
            if emission.finish_reason is not None:
                del self._tickets[emission.request_id]
            ticket.put(emission)

    def _ready(self, model: ServedModel) -> None:
        self.model = model
        self.state = LoopState.READY
        self._on_ready()

    def _end(self, error: Exception) -> None:
        before, self.state = self.state, LoopState.FAILED
        gone = DeadError(_DEAD)
        for ticket in self._tickets.values():
            ticket.put(gone)
        self._tickets.clear()
        while not self._commands.empty():
            command = self._commands.get()
            if command is not None:
                command.settle(None, gone)
        self._on_end(before, error)

    def _post(self, callback: Callable[..., None], *arguments: Any) -> None:
        # The asyncio loop is closed once the server has stopped; then nobody listens any more.
        if not self._asyncio.is_closed():
            self._asyncio.call_soon_threadsafe(callback, *arguments)

    def _run(self) -> None:
        try:
            loaded = self._load()
            self._post(self._ready, loaded.model)
            self._decode(loaded.engine)
        except Exception as error:
            self._post(self._end, error)

    def _decode(self, engine: DecodingEngine) -> None:
        while True:
            while not (engine.has_work() and self._commands.empty()):
                command = self._commands.get()
                if command is None:
                    return
                self._execute(command, engine)
            emissions = engine.step()
            if emissions:
                self._post(self._deliver, emissions)

    def _execute(self, command: _Command, engine: DecodingEngine) -> None:
        try:
            result = command.action(engine)
        except ValueError as refusal:
            self._post(command.settle, None, RefusedError(str(refusal)))
        except Exception:
            self._post(command.settle, None, DeadError(_DEAD))
            raise
        else:
            self._post(command.settle, result, None)


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
