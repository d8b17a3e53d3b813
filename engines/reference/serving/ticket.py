"""A request while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from engines.reference.decoding.request import Emission


class Ticket:
    """One running request, as asyncio sees it."""

    def __init__(self, request_id: str, on_cancel: Callable[[str], None]) -> None:
        self.request_id = request_id
        self._events: asyncio.Queue[Emission | Exception] = asyncio.Queue()
        self._on_cancel = on_cancel

    async def next(self) -> Emission:
        """The next step's tokens. Raises RefusedError, DeadError or Gone."""
        event = await self._events.get()
        if isinstance(event, Exception):
            raise event
        return event

    def put(self, event: Emission | Exception) -> None:
        self._events.put_nowait(event)

    def cancel(self) -> None:
        """Stop decoding; nothing happens where the request has already ended."""
        self._on_cancel(self.request_id)
