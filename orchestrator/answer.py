"""One answer as the load client received it: believed only when complete, and a row of requests.parquet."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engines.base import Engine, EngineError, SpecCounters
from engines.messages import one_line
from orchestrator.prompts import Prompt


class BadAnswerError(Exception):
    """The answer cannot count; the message is one line for the row's `error`."""


@dataclass
class Answer:
    """Times are time.perf_counter()'s, NaN for what never came.

    `chunk_times` and `chunk_tokens` hold the arrival and the token ids of each content chunk; `coalesced` counts the
    chunks that came in one read with the one before them.
    """

    prompt: Prompt
    scheduled: float
    sent: float = math.nan
    first: float = math.nan
    last: float = math.nan
    first_chunk_tokens: int = 0
    chunks: int = 0
    coalesced: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    finish_reason: str = "error"
    counters: SpecCounters | None = None
    chunk_times: list[float] = field(default_factory=list)
    chunk_tokens: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    prompt_token_ids: list[int] = field(default_factory=list)
    text: str = ""
    error: str = ""

    @classmethod
    def received(cls, prompt: Prompt, report: Mapping[str, Any], engine: Engine) -> Answer:
        """From `Stream.report`. Whatever the server's counts lack or contradict is the answer's `error`."""
        times, tokens = report["times"], report["tokens"]
        answer = cls(
            prompt,
            scheduled=_time(report["scheduled"]),
            sent=_time(report["sent"]),
            first=times[0] if times else math.nan,
            last=times[-1] if times else math.nan,
            first_chunk_tokens=tokens[0] if tokens else 0,
            chunks=len(times),
            coalesced=report["coalesced"],
            finish_reason=str(report["finish_reason"]),
            chunk_times=times,
            chunk_tokens=tokens,
            token_ids=report["token_ids"],
            prompt_token_ids=report["prompt_token_ids"],
            text=report["text"],
            error=report["error"],
        )
        if not answer.error:
            try:
                answer._believe(report["usage"], engine)
            except (BadAnswerError, EngineError) as error:
                answer.fail(str(error))
        return answer

    def _believe(self, chunk: dict[str, Any], engine: Engine) -> None:
        """Take the server's counts from the chunk with its usage. BadAnswerError when they do not fit."""
        usage = chunk["usage"]
        try:
            self.prompt_tokens = int(usage["prompt_tokens"])
            self.output_tokens = int(usage["completion_tokens"])
            self.cached_tokens = int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BadAnswerError(f"the server's usage cannot be read: {one_line(str(usage))}") from error
        self.counters = engine.request_counters(chunk)
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
            "chunk_times": [at - zero for at in self.chunk_times],
            "chunk_tokens": self.chunk_tokens,
            "coalesced": self.coalesced,
        }


def _time(value: float | None) -> float:
    """JSON has no NaN."""
    return math.nan if value is None else value
