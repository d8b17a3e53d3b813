"""One streamed answer: the chunks of an OpenAI chat completion put together, timed and believed only when complete."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

from engines.base import Engine, SpecCounters
from engines.messages import error_message, one_line
from orchestrator.prompts import Prompt

Chunk = dict[str, Any]


class BadAnswerError(Exception):
    """The answer cannot count; the message is one line for the row's `error`."""


@dataclass
class Answer:
    """A row of requests.parquet while its answer comes in. Times are time.perf_counter()'s, NaN for what never came.

    A content chunk is one with text or token ids: a token whose text waits for the rest of its UTF-8 bytes is there.
    """

    prompt: Prompt
    scheduled: float
    sent: float = math.nan
    first: float = math.nan
    last: float = math.nan
    first_chunk_tokens: int = 0
    chunks: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    finish_reason: str = "error"
    counters: SpecCounters | None = None
    token_ids: list[int] = field(default_factory=list)
    prompt_token_ids: list[int] = field(default_factory=list)
    text: str = ""
    error: str = ""
    _usage: Chunk | None = None

    def take(self, event: str, at: float) -> None:
        """Add one event of the stream that arrived at `at`."""
        chunk = _decode(event)
        if chunk.get("usage"):
            self._usage = chunk
        for choice in chunk.get("choices") or []:
            self._add(choice, at)
            self.prompt_token_ids = choice.get("prompt_token_ids") or self.prompt_token_ids
        self.prompt_token_ids = chunk.get("prompt_token_ids") or self.prompt_token_ids

    def _add(self, choice: Chunk, at: float) -> None:
        text = (choice.get("delta") or {}).get("content") or ""
        token_ids = choice.get("token_ids") or []
        self.finish_reason = choice.get("finish_reason") or self.finish_reason
        if not text and not token_ids:
            return
        if math.isnan(self.first):
            self.first, self.first_chunk_tokens = at, len(token_ids)
        self.last = at
        self.chunks += 1
        self.text += text
        self.token_ids.extend(token_ids)

    def finish(self, engine: Engine) -> None:
        """Take the server's counts after the last event. BadAnswerError when they are missing or do not fit."""
        if self._usage is None:
            raise BadAnswerError("the server sent no usage")
        usage = self._usage["usage"]
        try:
            self.prompt_tokens = int(usage["prompt_tokens"])
            self.output_tokens = int(usage["completion_tokens"])
            self.cached_tokens = int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BadAnswerError(f"the server's usage cannot be read: {one_line(str(usage))}") from error
        self.counters = engine.request_counters(self._usage)
        if self.output_tokens < 1:
            raise BadAnswerError("the server generated no token")
        if len(self.token_ids) != self.output_tokens:
            raise BadAnswerError(f"{len(self.token_ids)} token ids came, usage says {self.output_tokens} tokens")
        if self.finish_reason not in ("stop", "length"):
            raise BadAnswerError(f"finish_reason is {self.finish_reason!r} instead of stop or length")

    def fail(self, reason: str) -> None:
        self.error, self.finish_reason = reason, "error"

    def seconds_per_token(self) -> float:
        """TPOT where tokens follow the first chunk, else the whole request's time over its tokens."""
        following = self.output_tokens - self.first_chunk_tokens
        if following > 0 and self.last > self.first:
            return (self.last - self.first) / following
        return (self.last - self.sent) / max(1, self.output_tokens)

    def row(self, zero: float) -> dict[str, object]:
        """The row, with times counted from `zero`."""
        counters = self.counters or SpecCounters()
        return {
            "prompt_id": self.prompt.prompt_id,
            "task": self.prompt.task,
            "scheduled": self.scheduled - zero,
            "sent": self.sent - zero,
            "first": self.first - zero,
            "last": self.last - zero,
            "first_chunk_tokens": self.first_chunk_tokens,
            "chunks": self.chunks,
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": self.output_tokens,
            "finish_reason": self.finish_reason,
            "verify_steps": counters.verify_steps,
            "drafted": counters.drafted,
            "accepted": counters.accepted,
            "emitted": counters.emitted,
            "accepted_by_depth": list(counters.accepted_by_depth),
            "cached_tokens": self.cached_tokens,
            "token_ids": self.token_ids,
            "prompt_token_ids": self.prompt_token_ids,
            "text": self.text,
            "error": self.error,
        }


def _decode(event: str) -> Chunk:
    try:
        chunk = json.loads(event)
    except ValueError as error:
        raise BadAnswerError(f"a chunk is not JSON: {one_line(event)}") from error
    if not isinstance(chunk, dict):
        raise BadAnswerError(f"a chunk is not an object: {one_line(event)}")
    if chunk.get("error"):
        raise BadAnswerError(f"the server broke off: {error_message(event)}")
    return chunk
