"""One kept HTTP/1.1 connection: sends a request, stamps each read once, and hands the body's events to a Stream.

A read is stamped when the event loop delivers it and parsed at once, which takes two microseconds: to stamp all reads
of a turn first, and parse then, costs each of them another turn of the loop and gains nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from time import perf_counter
from typing import cast

import httptools

from engines.messages import error_message, one_line
from orchestrator.load.events import EventSplitter
from orchestrator.load.stream import BadStreamError, Reader, Stream

CLOSED = "connection lost: the server closed it before the answer was complete"


class Connection(asyncio.Protocol):
    """Carries one request at a time. `usable` turns False for good when it is closed or out of step."""

    def __init__(self, reader: Reader) -> None:
        self.usable = False
        self.idle_since = perf_counter()
        self._reader = reader
        self._parser = httptools.HttpResponseParser(self)
        self._stream: Stream | None = None
        self._answered: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        opened: socket.socket = transport.get_extra_info("socket")
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._descriptor = opened.fileno()
        self.usable = True

    async def ask(self, request: bytes, stream: Stream, timeout_s: float) -> None:
        """Send a request and wait until its answer is complete; then `stream` holds it, or its `error` says why not."""
        loop = asyncio.get_running_loop()
        self._stream, self._answered = stream, loop.create_future()
        self._events, self._body, self._done, self._at = EventSplitter(), b"", False, perf_counter()
        alarm = loop.call_later(timeout_s, self._fail, f"no complete answer within {timeout_s:g} s")
        try:
            self._send(request)
            stream.sent = perf_counter()
            await self._answered
        finally:
            alarm.cancel()
            self._stream = None
            if not self._answered.done():  # cancelled: the rest of the answer would come to the next request
                self.close()

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
        self._at = perf_counter()
        if self._stream is None or self._answered is None or self._answered.done():
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(f"the answer is not HTTP: {one_line(str(error)) or type(error).__name__}")

    def connection_lost(self, error: Exception | None) -> None:
        """An answer without a length ends so, too."""
        self.usable, self._at = False, perf_counter()
        if self._stream is None:
            return
        if self._done:
            self._complete()
        elif self._body:
            self._refused()
        else:
            self._fail(f"connection lost: {one_line(str(error))}" if error else CLOSED)

    def on_body(self, body: bytes) -> None:
        """httptools: a piece of the body, without its transfer coding."""
        stream = self._stream
        if stream is None:
            return
        if self._parser.get_status_code() != 200:
            self._body += body
            return
        try:
            for event in self._events.feed(body):
                if event == b"[DONE]":
                    self._done = True
                elif not self._done:
                    stream.take(event, self._at, self._reader)
        except BadStreamError as error:
            self._fail(str(error))

    def on_message_complete(self) -> None:
        """httptools: the whole answer is here."""
        if not self._parser.should_keep_alive():
            self.usable = False
        if self._parser.get_status_code() != 200:
            self._refused()
        elif self._done:
            self._complete()
        else:
            self._fail("the stream ended before [DONE]")

    def _complete(self) -> None:
        assert self._stream is not None
        try:
            self._stream.complete()
            self._finish()
        except BadStreamError as error:
            self._fail(str(error))

    def _refused(self) -> None:
        message = error_message(self._body.decode(errors="replace"))
        self._fail(f"HTTP {self._parser.get_status_code()}: {message}")

    def _fail(self, reason: str) -> None:
        if self._stream is not None and self._answered is not None and not self._answered.done():
            self._stream.error, self._stream.finish_reason = reason, "error"
            self.close()
            self._finish()

    def _finish(self) -> None:
        if self._stream is not None and self._answered is not None and not self._answered.done():
            self._stream.ended = self.idle_since = self._at
            self._answered.set_result(None)
