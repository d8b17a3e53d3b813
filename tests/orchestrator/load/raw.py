"""A server that sends exactly the bytes it is told, cut and paused as it is told."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Sequence

from engines.base import Endpoint

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
CUT = b""
"""Closes the connection."""


def event(value: object) -> bytes:
    data = value if isinstance(value, str) else json.dumps(value)
    return f"data: {data}\n\n".encode()


def token(*ids: int, text: str = "x", finish: str | None = None) -> bytes:
    """A content chunk."""
    return event({"choices": [{"delta": {"content": text}, "token_ids": list(ids), "finish_reason": finish}]})


def usage(tokens: int) -> bytes:
    return event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": tokens}})


def chunked(body: bytes) -> bytes:
    """One piece of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(body), body)


def whole(*events: bytes) -> bytes:
    """An answer of these events, one a piece, and its end."""
    return HEAD + b"".join(map(chunked, [*events, event("[DONE]")])) + END


class RawServer:
    """Answers the n-th request with the n-th list of writes, the last one from then on; a pause between two writes."""

    def __init__(self, *answers: Sequence[bytes], pause_s: float = 0.08) -> None:
        self._answers = answers
        self._pause_s = pause_s
        self.requests = 0
        self.connections = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
                await reader.readexactly(int(length.split(b":")[1]))
                self.requests += 1
                await self.respond(writer)

    async def respond(self, writer: asyncio.StreamWriter) -> None:
        answer = self._answers[min(self.requests, len(self._answers)) - 1]
        for number, data in enumerate(answer):
            if number:
                await asyncio.sleep(self._pause_s)
            if data == CUT:
                writer.close()
            else:
                writer.write(data)
                await writer.drain()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Endpoint]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield Endpoint(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "raw")
        finally:
            server.close()


class Wire(asyncio.Transport):
    """A transport with a socket to a listener that never reads: what it delivers, the test says."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._socket = socket.create_connection(self._listener.getsockname())
        super().__init__({"socket": self._socket})

    def abort(self) -> None:
        raise AssertionError("the answer is sound")

    def close(self) -> None:
        self._socket.close()
        self._listener.close()
