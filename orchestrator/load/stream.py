"""One streamed answer as it comes in: the chunks of an OpenAI chat completion put together and timed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from engines.base import EngineError
from engines.messages import error_message, one_line
from orchestrator.load.chunks import Chunk, decoded, parsed, shaped

Reader = Callable[[dict[str, Any]], dict[str, Any]]
"""From an event of the stream, in whatever an engine speaks, to a chunk of an OpenAI chat completion."""


def as_it_is(chunk: dict[str, Any]) -> dict[str, Any]:
    """The reader of an engine that speaks OpenAI's."""
    return chunk


class BadStreamError(Exception):
    """The answer cannot count; the message is one line for the row's `error`."""


class Stream:
    """What came of one request. Times are time.perf_counter()'s, NaN for what never came.

    A content chunk is one with text or token ids: a token whose text waits for the rest of its UTF-8 bytes is there.
    `times` and `tokens` hold each content chunk's arrival and number of token ids (0 where the server tells none).
    `coalesced` counts the chunks that came in one read with the chunk before them: their stamps are the read's.
    """

    __slots__ = (
        "_texts",
        "coalesced",
        "ended",
        "error",
        "finish_reason",
        "index",
        "prompt_token_ids",
        "scheduled",
        "sent",
        "times",
        "token_ids",
        "tokens",
        "usage",
    )

    def __init__(self, index: int, scheduled: float = math.nan, error: str = "") -> None:
        self.index = index
        self.scheduled = scheduled
        self.sent = math.nan
        self.ended = math.nan
        self.times: list[float] = []
        self.tokens: list[int] = []
        self.coalesced = 0
        self.finish_reason = "error"
        self.token_ids: list[int] = []
        self.prompt_token_ids: list[int] = []
        self.usage: dict[str, Any] | None = None
        self.error = error
        self._texts: list[str] = []

    def take_all(self, events: Sequence[bytes], stamps: Sequence[float], reader: Reader = as_it_is) -> None:
        """Add events of one line each that arrived at `stamps`. As `take`."""
        chunks = decoded(events) if reader is as_it_is else None
        values = parsed(events) if chunks is None else None
        for index, (event, at) in enumerate(zip(events, stamps, strict=True)):
            if chunks and chunks[index].usage is None and chunks[index].error is None:
                self._read(chunks[index], at)
            elif values:
                self._take(values[index], event, at, reader)
            else:
                self.take(event, at, reader)

    def take(self, event: bytes, at: float, reader: Reader = as_it_is) -> None:
        """Add one event of the stream that arrived at `at`. BadStreamError for one that says nothing usable."""
        try:
            said = orjson.loads(event)
        except ValueError as error:
            raise BadStreamError(f"a chunk is not JSON: {_quoted(event)}") from error
        self._take(said, event, at, reader)

    def _take(self, said: Any, event: bytes, at: float, reader: Reader) -> None:
        if said.__class__ is not dict:
            raise BadStreamError(f"a chunk is not an object: {_quoted(event)}")
        try:
            whole = reader(said)
            if whole.get("error"):
                raise BadStreamError(f"the server broke off: {error_message(orjson.dumps(whole).decode())}")
            if whole.get("usage"):
                self.usage = whole
            self._read(shaped(whole), at)
        except EngineError as error:
            raise BadStreamError(str(error)) from error
        except (AttributeError, TypeError) as error:
            raise BadStreamError(f"a chunk cannot be read: {_quoted(event)}") from error

    def _read(self, chunk: Chunk, at: float) -> None:
        if chunk.prompt_token_ids:
            self.prompt_token_ids = chunk.prompt_token_ids
        for choice in chunk.choices or ():
            if choice.finish_reason:
                self.finish_reason = choice.finish_reason
            if choice.prompt_token_ids:
                self.prompt_token_ids = choice.prompt_token_ids
            text, ids = choice.delta.content if choice.delta else None, choice.token_ids
            if text or ids:
                times = self.times
                if times and times[-1] == at:
                    self.coalesced += 1
                times.append(at)
                self.tokens.append(len(ids or ()))
                self.token_ids += ids or ()
                self._texts.append(text or "")

    def complete(self) -> None:
        """Say that the stream ended as it should. BadStreamError when the server's count of tokens did not come."""
        if self.usage is None:
            raise BadStreamError("the server sent no usage")

    def report(self) -> dict[str, Any]:
        """For the pipe, where NaN becomes null."""
        names = (name for name in self.__slots__ if not name.startswith("_"))
        return {name: getattr(self, name) for name in names} | {"text": "".join(self._texts)}


def _quoted(event: bytes) -> str:
    return one_line(event.decode(errors="replace"))
