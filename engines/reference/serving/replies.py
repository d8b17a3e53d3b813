"""Response bodies in OpenAI's shape, with token ids and speculative counters where asked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from engines.reference.decoding.request import SpecStats, TopLogprobs
from engines.reference.serving.generation import Delta
from engines.reference.serving.text import Tokenizer

DONE = b"data: [DONE]\n\n"


class Shape(Protocol):
    """Where the two endpoints differ."""

    prefix: str
    whole_object: str
    chunk_object: str

    def whole(self, text: str) -> dict[str, Any]:
        """The choice's text in a full response."""

    def chunk(self, text: str, first: bool) -> dict[str, Any]:
        """The choice's text in a stream chunk."""


class CompletionShape:
    prefix = "cmpl"
    whole_object = chunk_object = "text_completion"

    def whole(self, text: str) -> dict[str, Any]:
        return {"text": text}

    def chunk(self, text: str, first: bool) -> dict[str, Any]:
        return {"text": text}


class ChatShape:
    prefix = "chatcmpl"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def whole(self, text: str) -> dict[str, Any]:
        return {"message": {"role": "assistant", "content": text}}

    def chunk(self, text: str, first: bool) -> dict[str, Any]:
        return {"delta": {"role": "assistant", "content": text} if first else {"content": text}}


@dataclass
class Reply:
    """One answer under way. `seed` is stated so that a sampled answer can be had again."""

    shape: Shape
    request_id: str
    model: str
    created: int
    prompt_ids: Sequence[int]
    seed: int
    with_token_ids: bool
    logprobs: int | None
    tokenizer: Tokenizer
    completion_tokens: int = 0
    stats: SpecStats = field(default_factory=SpecStats)
    _started: bool = False

    def chunk(self, delta: Delta) -> bytes:
        """The stream chunk of one decode step."""
        first, self._started = not self._started, True
        self._count(delta)
        choice = {"index": 0, **self.shape.chunk(delta.text, first), "finish_reason": delta.finish_reason}
        choice |= self._evidence(delta.token_ids, delta.top_logprobs)
        return event(self._head(self.shape.chunk_object) | (self._origin() if first else {}) | {"choices": [choice]})

    def usage_chunk(self) -> bytes:
        """The chunk after the last one, for `stream_options.include_usage`."""
        return event(self._head(self.shape.chunk_object) | {"choices": [], "usage": self._usage()})

    def whole(self, parts: Sequence[Delta]) -> dict[str, Any]:
        """The full response."""
        for delta in parts:
            self._count(delta)
        text = "".join(delta.text for delta in parts)
        choice = {"index": 0, **self.shape.whole(text), "finish_reason": parts[-1].finish_reason}
        ids = [token_id for delta in parts for token_id in delta.token_ids]
        choice |= self._evidence(ids, tuple(top for delta in parts for top in delta.top_logprobs))
        return self._head(self.shape.whole_object) | self._origin() | {"choices": [choice], "usage": self._usage()}

    def _count(self, delta: Delta) -> None:
        self.completion_tokens += len(delta.token_ids)
        self.stats = delta.stats

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.request_id, "object": kind, "created": self.created, "model": self.model}

    def _origin(self) -> dict[str, Any]:
        return {"seed": self.seed} | ({"prompt_token_ids": list(self.prompt_ids)} if self.with_token_ids else {})

    def _evidence(self, token_ids: list[int], tops: tuple[TopLogprobs, ...]) -> dict[str, Any]:
        evidence: dict[str, Any] = {"token_ids": token_ids} if self.with_token_ids else {}
        if self.logprobs is None:
            return evidence
        evidence["logprobs"] = _logprobs(token_ids, tops, self.tokenizer)
        if self.with_token_ids:
            evidence["logprobs"]["top_token_ids"] = [[token_id for token_id, _ in top] for top in tops]
            evidence["logprobs"]["top_token_logprobs"] = [[logprob for _, logprob in top] for top in tops]
        return evidence

    def _usage(self) -> dict[str, Any]:
        return {
            "prompt_tokens": len(self.prompt_ids),
            "completion_tokens": self.completion_tokens,
            "total_tokens": len(self.prompt_ids) + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": 0},
            "speculative": counters(self.stats),
        }


def event(body: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def counters(stats: SpecStats) -> dict[str, Any]:
    """SpecCounters of engines.base as JSON."""
    return {
        "verify_steps": stats.verify_steps,
        "drafted": stats.drafted,
        "accepted": stats.accepted,
        "emitted": stats.emitted,
        "accepted_by_depth": list(stats.accepted_by_depth),
    }


def error_body(message: str, kind: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """OpenAI's error shape."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _logprobs(token_ids: list[int], tops: tuple[TopLogprobs, ...], tokenizer: Tokenizer) -> dict[str, Any]:
    """OpenAI's completion log-probabilities. A sampled token outside its top list has null: it was not measured."""
    named = [{tokenizer.token_text(token_id): logprob for token_id, logprob in top} for top in tops]
    chosen = [dict(top).get(token_id) for token_id, top in zip(token_ids, tops, strict=True)]
    return {
        "tokens": [tokenizer.token_text(token_id) for token_id in token_ids],
        "token_logprobs": chosen,
        "top_logprobs": named,
    }
