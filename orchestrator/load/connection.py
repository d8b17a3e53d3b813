"""One kept HTTP/1.1 connection: sends a request, and stamps each read when the event loop delivers it.

Reads in the middle of an answer are held and parsed a few at a time: less lies between a read and the stamp of the next
one where a server sends to many streams at once. An answer's head, and what may be its end, are parsed at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
from time import perf_counter
from typing import cast

from orchestrator.load.reply import Read, Reply
from orchestrator.load.stream import BadStreamError, Reader, Stream

_TOGETHER = 32
"""Reads parsed in one go."""
_turns = itertools.cycle(range(2, _TOGETHER + 2))
"""How many the next connection parses first: streams that a server sends in step are not all parsed in one step."""
_END = b"\r\n\r\n"
"""Of an answer in chunks, with trailers or not. It may be cut, and then the last read is shorter."""


class Connection(asyncio.Protocol):
    """Carries one request at a time. `usable` turns False for good when it is closed or out of step."""

    def __init__(self, reader: Reader) -> None:
        self.usable = False
        self.idle_since = perf_counter()
        self._reader = reader
        self._reads: list[Read] = []
        self._hold = 1
        self._first = next(_turns)
        self._reply: Reply | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        opened: socket.socket = transport.get_extra_info("socket")
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._descriptor = opened.fileno()
        self.usable = True

    async def ask(self, request: bytes, stream: Stream, timeout_s: float) -> None:
        """Send a request and wait until its answer is complete; then `stream` holds it, or its `error` says why not."""
        loop = asyncio.get_running_loop()
        self._reply, self._stream, self._answered = Reply(stream, self._reader), stream, loop.create_future()
        self._at = perf_counter()
        alarm = loop.call_later(timeout_s, self._expire, timeout_s)
        try:
            self._send(request)
            stream.sent = perf_counter()
            await self._answered
        finally:
            alarm.cancel()
            if self._reply is not None:  # cancelled: the rest of the answer would come to the next request
                self.close()
                self._release()

    def _send(self, request: bytes) -> None:
        """Straight to the socket: a transport writes when the loop comes to it, which would be after the stamp."""
        written = 0
        with contextlib.suppress(OSError):  # full, or lost: the transport finds out which
            written = os.write(self._descriptor, request)
        if written < len(request):
            self._transport.write(request[written:])

    def close(self) -> None:
        self.usable = False
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        reads = self._reads
        reads.append((perf_counter(), data))
        if data[-4:] == _END or len(reads) >= self._hold or len(data) < len(_END):
            self._parse()

    def connection_lost(self, error: Exception | None) -> None:
        self.usable, now = False, perf_counter()
        self._parse()
        if self._reply is not None:
            self._at = now
            try:
                self._reply.cut(str(error or ""))
                self._finish()
            except BadStreamError as bad:
                self._fail(str(bad))

    def _parse(self) -> None:
        """What is held. Bytes that nothing was asked for put the connection out of step."""
        reads, self._reads = self._reads, []
        if not reads:
            return
        if self._reply is None:
            self.close()
            return
        self._at = reads[-1][0]
        try:
            self._reply.feed(reads)
        except BadStreamError as error:
            self._fail(str(error))
            return
        if self._reply.chunked:
            self._hold = self._first if self._hold == 1 else _TOGETHER
        if self._reply.complete:
            self.usable = self.usable and self._reply.kept
            self._finish()

    def _expire(self, timeout_s: float) -> None:
        self._parse()
        self._fail(f"no complete answer within {timeout_s:g} s")

    def _fail(self, reason: str) -> None:
        if self._reply is not None:
            self._stream.error, self._stream.finish_reason = reason, "error"
            self.close()
            self._finish()

    def _finish(self) -> None:
        self._release()
        self._stream.ended = self.idle_since = self._at
        if not self._answered.done():
            self._answered.set_result(None)

    def _release(self) -> None:
        if self._reply is not None:
            self._reply.release()
        self._reply, self._hold = None, 1
