"""What is looked at of a chunk of an OpenAI chat completion, parsed to that shape and nothing beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
import orjson

TokenId = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class Delta(msgspec.Struct, gc=False):
    """Text that a chunk adds."""

    content: str | None = None


class Choice(msgspec.Struct, gc=False):
    """The answer, of which there is one a request. vLLM puts ids here."""

    delta: Delta | None = None
    finish_reason: str | None = None
    token_ids: list[TokenId] | None = None
    prompt_token_ids: list[TokenId] | None = None


class Chunk(msgspec.Struct, gc=False):
    """`usage` and `error` only tell that there is one: a chunk with either is read whole."""

    choices: list[Choice] | None = None
    prompt_token_ids: list[TokenId] | None = None
    usage: Any = None
    error: Any = None


_decode = msgspec.json.Decoder(list[Chunk]).decode


def decoded(events: Sequence[bytes]) -> list[Chunk] | None:
    """The chunks of events, each without line breaks, in one piece; None where one is anything else."""
    return _together(_decode, events)


def parsed(events: Sequence[bytes]) -> list[Any] | None:
    """The values of events, each without line breaks, in one piece; None where one is no JSON."""
    return _together(orjson.loads, events)


def _together(parse: Callable[[bytes], list[Any]], events: Sequence[bytes]) -> list[Any] | None:
    """A line has a value or more, so as many values as events are one of each."""
    try:
        values = parse(b"[%b]" % b",".join(events))
    except (ValueError, msgspec.DecodeError):
        return None
    return values if len(values) == len(events) else None


def shaped(chunk: Mapping[str, Any]) -> Chunk:
    """A chunk that was parsed to plain objects. TypeError where a field is of another type."""
    try:
        return msgspec.convert(chunk, Chunk)
    except msgspec.ValidationError as error:
        raise TypeError(str(error)) from error
