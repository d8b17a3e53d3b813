"""How a started server is reached and asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


class Place(Protocol):
    """Where a server runs, as far as its own words are about files there."""

    @property
    def port(self) -> int:
        """What the server listens on there."""

    def read(self, path: str) -> bytes | None:
        """A file as the server sees it; None where there is none."""

    def digest(self, folder: str) -> str | None:
        """`engines.digests.digest` of a folder there; None where there is none."""


@dataclass(frozen=True)
class Endpoint:
    """A started server. `headers` go with every request; `place` is None for one that this process started here."""

    base_url: str
    model: str
    headers: Mapping[str, str] = field(default_factory=dict)
    place: Place | None = None


@dataclass(frozen=True)
class Dialect:
    """Where an engine takes streamed requests, and what its answers look like.

    `reader`: `module:function` that turns an event of the stream into a chunk of an OpenAI chat completion, for the
    load generator's process, so it needs the standard library only; empty where events are such chunks.
    """

    path: str
    reader: str = ""


OPENAI = Dialect("/v1/chat/completions")


@dataclass(frozen=True)
class Call:
    """The body of a streamed request. `prompt_token_ids`: the prompt, where the answer will not tell."""

    body: Mapping[str, object]
    prompt_token_ids: tuple[int, ...] = ()
