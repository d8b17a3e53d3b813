"""The parts below the API: event streams, clients that leave, and bodies that are too large."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engines.reference.serving.replies import error_body


class ApiError(Exception):
    """An answer in OpenAI's error shape."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code

    def body(self) -> bytes:
        return json.dumps(error_body(self.message, error_kind(self.status), self.param, self.code)).encode()

    def response(self) -> Response:
        return Response(self.body(), self.status, media_type="application/json")


def error_kind(status: int) -> str:
    """OpenAI's `type` for a status."""
    kinds = {404: "not_found_error", 409: "conflict_error", 429: "rate_limit_error", 503: "service_unavailable_error"}
    return kinds.get(status, "invalid_request_error" if status < 500 else "server_error")


class EventStream(Response):
    """Server-sent events, one write each. `on_end` runs however the stream ends."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes], on_end: Callable[[], None]) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._events = events
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for event in self._events:
                await send({"type": "http.response.body", "body": event, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._on_end()


class Attended:
    """While the block runs, a client that closes its connection makes `cancel` be called; so does leaving the block.

    `hand_over()` lets the watch outlive the block and returns what ends it.
    """

    def __init__(self, request: Request, cancel: Callable[[], None]) -> None:
        self._request = request
        self._cancel = cancel
        self._handed_over = False

    def __enter__(self) -> Attended:
        self._task = asyncio.create_task(self._wait())
        return self

    def __exit__(self, *_: object) -> None:
        if not self._handed_over:
            self._end()

    def hand_over(self) -> Callable[[], None]:
        self._handed_over = True
        return self._end

    async def _wait(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass
        self._cancel()

    def _end(self) -> None:
        self._task.cancel()
        self._cancel()


class BodyLimit:
    """Refuses request bodies of more than `limit` bytes, with or without a Content-Length."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            receive = self._counted(receive)
        await self._app(scope, receive, send)

    def _counted(self, receive: Receive) -> Callable[[], Awaitable[Message]]:
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._limit:
                raise HTTPException(413, f"the request body is larger than {self._limit} bytes")
            return message

        return counted
