"""A prompt, a set of prompts, and the hash that says which prompts they are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Prompt:
    """A conversation up to the model's turn; `messages` are (role, content) pairs, as a chat template takes them."""

    prompt_id: str
    task: str
    messages: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class PromptSet:
    """Prompts drawn from a named source.

    `version` is the content hash of the whole source, whatever was drawn from it; `digest` that of the prompts held
    here. Printed with every result: acceptance depends on the data set's variant as much as on the method.
    """

    name: str
    version: str
    seed: int
    prompts: tuple[Prompt, ...]

    @cached_property
    def digest(self) -> str:
        return content_hash(self.prompts)

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(sorted({prompt.task for prompt in self.prompts}))


def content_hash(prompts: Iterable[Prompt]) -> str:
    """sha256 over ids, tasks and messages as canonical JSON, in the order of the ids."""
    content = sorted((p.prompt_id, p.task, p.messages) for p in prompts)
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
