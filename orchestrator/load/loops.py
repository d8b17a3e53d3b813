"""When requests are sent. Both loops return one Stream for every request, in the order sent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter

from orchestrator.load.backlog import Backlog
from orchestrator.load.connections import Connections
from orchestrator.load.stream import Stream

NOT_SENT = "not sent: an earlier request failed"
STOPPED = "not answered: the load was over-saturated and stopped"

_LEAD_S = 0.005
"""From now to the first request of an open loop, so that it can be on time."""
_TICK_S = 0.0015
"""uvloop's timers tick in milliseconds."""

Told = Callable[[Stream], None]


async def closed_loop(connections: Connections, requests: Sequence[bytes], slots: int, told: Told) -> list[Stream]:
    """`slots` workers; each sends its next request when its last one is answered, and that moment is its schedule.

    After a failed request no further one is sent: the trial cannot count any more.
    """
    await connections.prepare(min(slots, len(requests)))
    waiting = deque(enumerate(requests))
    streams: list[Stream] = []
    failed = False

    async def work(free_since: float) -> None:
        nonlocal failed
        while waiting and not failed:
            index, request = waiting.popleft()
            stream = Stream(index, scheduled=free_since)
            streams.append(stream)
            await connections.ask(request, stream)
            told(stream)
            failed = failed or bool(stream.error)
            free_since = stream.ended

    start = perf_counter()
    await asyncio.gather(*(work(start) for _ in range(slots)))
    return streams + [Stream(index, error=NOT_SENT) for index, _ in waiting]


async def open_loop(
    connections: Connections, requests: Sequence[bytes], offsets: Sequence[float], slots: int, told: Told
) -> tuple[list[Stream], str]:
    """Each request at its offset in seconds, whatever became of those before: its schedule is that moment.

    Also returns why the load was stopped as over-saturated; empty when it was not.
    """
    await connections.prepare(min(slots, len(requests)))
    backlog, tasks, streams = Backlog(slots, offsets), set[asyncio.Task[None]](), list[Stream]()
    failed, excess = False, ""

    async def ask(request: bytes, stream: Stream) -> None:
        nonlocal failed
        await connections.ask(request, stream)
        failed = failed or bool(stream.error)
        backlog.answered()
        told(stream)

    start = perf_counter() + _LEAD_S
    for index, (request, offset) in enumerate(zip(requests, offsets, strict=True)):
        await until(start + offset)
        if failed or excess:
            break
        stream = Stream(index, scheduled=start + offset)
        streams.append(stream)
        tasks.add(asyncio.create_task(ask(request, stream)))
        backlog.sent()
        excess = backlog.excess(perf_counter() - start)
    if excess:
        await _cut(tasks)
        for stream in streams:
            stream.error = stream.error or ("" if stream.ended == stream.ended else STOPPED)
    await asyncio.gather(*tasks, return_exceptions=bool(excess))
    reason = STOPPED if excess else NOT_SENT
    return streams + [Stream(index, error=reason) for index in range(len(streams), len(requests))], excess


async def until(when: float) -> None:
    """Sleep to short of `when`, then let the loop turn until it is time."""
    if (left := when - perf_counter()) > _TICK_S:
        await asyncio.sleep(left - _TICK_S)
    while perf_counter() < when:  # noqa: ASYNC110 - time passes without an event
        await asyncio.sleep(0)


async def _cut(tasks: set[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
