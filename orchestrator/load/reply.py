"""One answer, from the reads that it comes in to a Stream: HTTP taken off, events split, chunks parsed.

Reads are handed over a few at a time. Mostly each is one event, and then they go on to the stream in one piece.
"""

from __future__ import annotations

from collections.abc import Sequence

import httptools

from engines.messages import error_message, one_line
from orchestrator.load.events import EventSplitter, single_lines
from orchestrator.load.stream import BadStreamError, Reader, Stream

CLOSED = "connection lost: the server closed it before the answer was complete"

_END = b"[DONE]"
_DONE = b"data: %b\n\n" % _END

Read = tuple[float, bytes]
"""When it came, and what."""


class Reply:
    """The answer to one request. `complete` when all of it is here."""

    def __init__(self, stream: Stream, reader: Reader) -> None:
        self._stream, self._reader = stream, reader
        self._events = EventSplitter()
        self._bodies: list[bytes] = []
        self._wanted: int | None = None
        self._refusal = b""
        self._status = self._messages = 0
        self._done = False
        self._keep = self.chunked = self.complete = False
        self.on_body = self._bodies.append
        """httptools: a piece of the body, without its transfer coding."""
        self._parser = httptools.HttpResponseParser(self)

    @property
    def kept(self) -> bool:
        """Whether the connection is good for another request."""
        return self._keep and self._messages == 1

    def feed(self, reads: Sequence[Read]) -> None:
        """Add what came. BadStreamError when the answer cannot count."""
        bodies, stamps, garbage = self._bodies, list[float](), ""
        for at, data in reads:
            try:
                self._parser.feed_data(data)
            except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
                garbage = f"the answer is not HTTP: {one_line(str(error)) or type(error).__name__}"
            if missing := len(bodies) - len(stamps):
                stamps += [at] * missing
            if garbage:
                break
        self._take(bodies[: self._wanted], stamps[: self._wanted])
        bodies.clear()
        if self.complete:
            self._keep = self._keep and not garbage
            self._check()
        elif garbage:
            raise BadStreamError(garbage)

    def cut(self, reason: str) -> None:
        """The connection ended, for a `reason` where there was one: so ends an answer without a length, too."""
        if not self._done and not self._refusal:
            raise BadStreamError(f"connection lost: {one_line(reason)}" if reason else CLOSED)
        self._check()

    def release(self) -> None:
        """Let go of the parser, which holds on to this in turn: no garbage is collected while a load runs."""
        del self._parser

    def on_message_begin(self) -> None:
        """httptools. A second one is no answer to anything."""
        self._messages += 1

    def on_header(self, name: bytes, value: bytes) -> None:
        """httptools."""
        if name.lower() == b"transfer-encoding" and value.lower() == b"chunked":
            self.chunked = True

    def on_headers_complete(self) -> None:
        """httptools."""
        self._status = self._status or self._parser.get_status_code()

    def on_message_complete(self) -> None:
        """httptools: the whole answer is here."""
        if not self.complete:
            self.complete, self._wanted = True, len(self._bodies)
            self._keep = self._parser.should_keep_alive()

    def _take(self, bodies: Sequence[bytes], stamps: Sequence[float]) -> None:
        if self._status != 200:
            self._refusal += b"".join(bodies)
            return
        events = bodies[:-1] if bodies[-1:] == [_DONE] else bodies
        lines = single_lines(events) if self._events.between and not self._done else None
        if lines is not None and _END not in lines:
            self._stream.take_all(lines, stamps[: len(lines)], self._reader)
            self._done = len(events) < len(bodies)
        else:
            for body, at in zip(bodies, stamps, strict=True):
                self._split(body, at)

    def _split(self, body: bytes, at: float) -> None:
        for event in self._events.feed(body):
            if event == _END:
                self._done = True
            elif not self._done:
                self._stream.take(event, at, self._reader)

    def _check(self) -> None:
        if self._status != 200:
            raise BadStreamError(f"HTTP {self._status}: {error_message(self._refusal.decode(errors='replace'))}")
        if not self._done:
            raise BadStreamError("the stream ended before [DONE]")
        self._stream.complete()
