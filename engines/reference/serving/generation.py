"""From the engine's emissions to what a client sees: text, token ids, finish reason, step by step."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from engines.reference.decoding.request import Emission, SpecStats, TopLogprobs
from engines.reference.serving.text import TextStream
from engines.reference.serving.ticket import Ticket


@dataclass(frozen=True)
class Delta:
    """One decode step's share of the answer. `text` may be empty while a character or stop string is incomplete."""

    text: str
    token_ids: list[int]
    finish_reason: str | None
    stats: SpecStats
    top_logprobs: tuple[TopLogprobs, ...] = ()


async def deltas(ticket: Ticket, text: TextStream) -> AsyncIterator[Delta]:
    """Deltas until one has a finish reason; after a stop string the engine may still be decoding the request.

    Token ids run up to the stop token, or to the token that completes a stop string. `stats` are the engine's counts,
    so after a stop string they still contain the rest of that step. Raises what `Ticket.next` raises.
    """
    finished = False
    while not finished:
        delta = _delta(await ticket.next(), text)
        finished = delta.finish_reason is not None
        yield delta


def _delta(emission: Emission, text: TextStream) -> Delta:
    ids, reason = emission.token_ids, emission.finish_reason
    # A stop token is part of the ids but never of the text.
    piece = text.push(ids[:-1] if reason == "stop" else ids)
    if piece.stopped:
        return Delta(piece.text, ids[: piece.kept], "stop", emission.stats, emission.top_logprobs[: piece.kept])
    rest = text.flush() if reason is not None else ""
    return Delta(piece.text + rest, ids, reason, emission.stats, emission.top_logprobs)
