"""Drawing prompts from a set and dealing them into blocks, balanced over tasks.

Every order here sorts by a hash of (purpose, seed, id): the same on every machine and Python version, whatever the
order of the data file.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Sequence

from orchestrator.prompts.errors import PromptError
from orchestrator.prompts.prompt import Prompt, PromptSet


def draw(prompts: Sequence[Prompt], count: int, seed: int) -> tuple[Prompt, ...]:
    """`count` (at most all) different prompts, from the tasks in turn until one runs out."""
    assert count <= len(prompts)
    turns = itertools.zip_longest(*_by_task(prompts, "draw", seed))
    return tuple(itertools.islice((prompt for turn in turns for prompt in turn if prompt), count))


def blocks(prompt_set: PromptSet, count: int, seed: int) -> tuple[tuple[Prompt, ...], ...]:
    """Every prompt in exactly one of `count` blocks; sizes, and each task's share, differ by at most one."""
    if not 1 <= count <= len(prompt_set.prompts):
        raise PromptError(
            f"blocks.max: {len(prompt_set.prompts)} prompts cannot be dealt into {count} blocks; "
            f"allowed: 1 to {len(prompt_set.prompts)}"
        )
    deck = list(itertools.chain.from_iterable(_by_task(prompt_set.prompts, "deal", seed)))
    return tuple(tuple(shuffled(deck[first::count], "block", seed)) for first in range(count))


def shuffled(prompts: Iterable[Prompt], purpose: str, seed: int) -> list[Prompt]:
    return sorted(prompts, key=lambda prompt: _rank(purpose, seed, prompt.prompt_id))


def _by_task(prompts: Sequence[Prompt], purpose: str, seed: int) -> list[list[Prompt]]:
    tasks = sorted({prompt.task for prompt in prompts}, key=lambda task: _rank(f"{purpose} task", seed, task))
    return [shuffled((p for p in prompts if p.task == task), purpose, seed) for task in tasks]


def _rank(purpose: str, seed: int, name: str) -> bytes:
    return hashlib.sha256(f"{purpose}/{seed}/{name}".encode()).digest()
