"""One streamed answer as it comes in: the chunks of an OpenAI chat completion put together and timed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from engines.base import EngineError
from engines.messages import error_message, one_line

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

    def take(self, event: bytes, at: float, reader: Reader = as_it_is) -> None:
        """Add one event of the stream that arrived at `at`. BadStreamError for one that says nothing usable."""
        try:
            chunk = orjson.loads(event)
        except ValueError as error:
            raise BadStreamError(f"a chunk is not JSON: {_quoted(event)}") from error
        self.take_all([chunk], [at], reader)

    def take_all(self, chunks: Sequence[Any], stamps: Sequence[float], reader: Reader = as_it_is) -> None:
        """Add events, parsed, that arrived at `stamps`. As `take`."""
        for chunk, at in zip(chunks, stamps, strict=True):
            if chunk.__class__ is not dict:
                raise BadStreamError(f"a chunk is not an object: {_quoted(chunk)}")
            try:
                self._read(chunk if reader is as_it_is else reader(chunk), at)
            except EngineError as error:
                raise BadStreamError(str(error)) from error
            except (AttributeError, TypeError) as error:
                raise BadStreamError(f"a chunk cannot be read: {_quoted(chunk)}") from error

    def _read(self, chunk: dict[str, Any], at: float) -> None:
        if chunk.get("error"):
            raise BadStreamError(f"the server broke off: {error_message(orjson.dumps(chunk).decode())}")
        if chunk.get("usage"):
            self.usage = chunk
        if "prompt_token_ids" in chunk:
            self.prompt_token_ids = chunk["prompt_token_ids"] or self.prompt_token_ids
        for choice in chunk.get("choices") or ():
            if reason := choice.get("finish_reason"):
                self.finish_reason = reason
            if "prompt_token_ids" in choice:
                self.prompt_token_ids = choice["prompt_token_ids"] or self.prompt_token_ids
            delta, ids = choice.get("delta"), choice.get("token_ids")
            text = delta.get("content") if delta else None
            if text or ids:
                self._add(text or "", ids or [], at)

    def _add(self, text: str, ids: list[int], at: float) -> None:
        if text.__class__ is not str:
            raise TypeError
        times = self.times
        if times and times[-1] == at:
            self.coalesced += 1
        times.append(at)
        self.tokens.append(len(ids))
        self.token_ids += ids
        self._texts.append(text)

    def complete(self) -> None:
        """Say that the stream ended as it should. BadStreamError when the server's count of tokens did not come."""
        if self.usage is None:
            raise BadStreamError("the server sent no usage")

    def report(self) -> dict[str, Any]:
        """For the pipe, where NaN becomes null."""
        names = (name for name in self.__slots__ if not name.startswith("_"))
        return {name: getattr(self, name) for name in names} | {"text": "".join(self._texts)}


def _quoted(event: Any) -> str:
    text = event if isinstance(event, bytes) else orjson.dumps(event)
    return one_line(text.decode(errors="replace"))
