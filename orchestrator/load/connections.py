"""The connections to one server: opened ahead, kept, and replaced before the server may have closed them."""

from __future__ import annotations

import asyncio
import contextlib
from time import perf_counter

from engines.messages import one_line
from orchestrator.load.connection import Connection
from orchestrator.load.stream import Reader, Stream, as_it_is

_IDLE_S = 2.0
"""Servers close idle connections, uvicorn after 5 s; a request that meets that would fail for no fault of its own."""
_AT_ONCE = 64
"""Connections opened together: a server's queue of those not accepted yet is often no longer than 100."""


class Connections:
    """To `host`:`port`. A request takes one of its own, so that none waits for another."""

    def __init__(self, host: str, port: int, timeout_s: float, reader: Reader = as_it_is) -> None:
        self._host, self._port = host, port
        self._timeout_s = timeout_s
        self._reader = reader
        self._idle: list[Connection] = []

    async def prepare(self, count: int) -> None:
        """Have `count` fresh connections waiting. A server that is not there shows when it is asked."""
        self._drop_stale()
        with contextlib.suppress(OSError):
            while (missing := count - len(self._idle)) > 0:
                self._idle += await asyncio.gather(*(self._open() for _ in range(min(missing, _AT_ONCE))))

    async def ask(self, request: bytes, stream: Stream) -> None:
        """Send one request; `stream` holds the answer, or its `error` says why there is none."""
        try:
            connection = await self._take()
        except OSError as error:
            stream.error = f"connection lost: {one_line(str(error))}"
            stream.ended = perf_counter()
            return
        await connection.ask(request, stream, self._timeout_s)
        if connection.usable:
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    async def _take(self) -> Connection:
        self._drop_stale()
        while self._idle:
            if (connection := self._idle.pop()).usable:
                return connection
        return await self._open()

    def _drop_stale(self) -> None:
        """The longest idle come first, as the last one given back is the first one taken."""
        while self._idle and (not self._idle[0].usable or perf_counter() - self._idle[0].idle_since > _IDLE_S):
            self._idle.pop(0).close()

    async def _open(self) -> Connection:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._timeout_s):  # its TimeoutError is an OSError
            _, connection = await loop.create_connection(lambda: Connection(self._reader), self._host, self._port)
        return connection
