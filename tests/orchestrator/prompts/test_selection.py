"""Drawing and dealing: balanced, disjoint, the same every time."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.prompts import Prompt, PromptError, PromptSet, blocks
from orchestrator.prompts.selection import draw

SIZES = st.lists(st.integers(1, 12), min_size=1, max_size=5)


def _prompts(sizes: list[int]) -> list[Prompt]:
    return [
        Prompt(f"{task}/{i}", f"task{task}", (("user", f"{task} {i}"),))
        for task, size in enumerate(sizes)
        for i in range(size)
    ]


def _set(sizes: list[int]) -> PromptSet:
    return PromptSet("test", "v", 0, tuple(_prompts(sizes)))


@settings(max_examples=200)
@given(SIZES, st.data(), st.integers())
def test_a_draw_is_balanced_and_recycles_nothing(sizes: list[int], data: st.DataObject, seed: int) -> None:
    prompts = _prompts(sizes)
    count = data.draw(st.integers(1, len(prompts)))
    drawn = draw(prompts, count, seed)
    assert len(drawn) == len(set(drawn)) == count
    shares = Counter(prompt.task for prompt in drawn)
    most = max(shares.values())
    for task, size in enumerate(sizes):
        assert shares[f"task{task}"] >= min(size, most - 1)


@settings(max_examples=200)
@given(SIZES, st.data(), st.integers())
def test_a_smaller_draw_is_the_beginning_of_a_larger_one(sizes: list[int], data: st.DataObject, seed: int) -> None:
    prompts = _prompts(sizes)
    count = data.draw(st.integers(1, len(prompts)))
    assert draw(prompts, count, seed) == draw(prompts, len(prompts), seed)[:count]
    assert draw(prompts, count, seed) == draw(prompts[::-1], count, seed)


@settings(max_examples=200)
@given(SIZES, st.data(), st.integers())
def test_blocks_hold_every_prompt_once_and_are_balanced(sizes: list[int], data: st.DataObject, seed: int) -> None:
    prompt_set = _set(sizes)
    count = data.draw(st.integers(1, len(prompt_set.prompts)))
    dealt = blocks(prompt_set, count, seed)
    assert len(dealt) == count
    assert Counter(prompt for block in dealt for prompt in block) == Counter(prompt_set.prompts)
    assert _spread([len(block) for block in dealt]) <= 1
    for task in prompt_set.tasks:
        assert _spread([sum(prompt.task == task for prompt in block) for block in dealt]) <= 1


def test_the_deal_depends_on_the_seed_alone() -> None:
    prompt_set = _set([6, 6])
    turned = PromptSet("test", "v", 0, prompt_set.prompts[::-1])
    assert blocks(prompt_set, 3, 1) == blocks(turned, 3, 1)
    assert blocks(prompt_set, 3, 1) != blocks(prompt_set, 3, 2)


def test_the_deal_is_the_same_on_every_machine() -> None:
    dealt = blocks(_set([4, 4]), 2, 7)
    assert [[prompt.prompt_id for prompt in block] for block in dealt] == KNOWN_DEAL


@pytest.mark.parametrize("count", [0, -1, 7])
def test_a_deal_that_cannot_be(count: int) -> None:
    with pytest.raises(PromptError, match=rf"6 prompts cannot be dealt into {count} blocks; allowed: 1 to 6"):
        blocks(_set([3, 3]), count, 0)


def _spread(sizes: list[int]) -> int:
    return max(sizes) - min(sizes)


KNOWN_DEAL = [["0/3", "1/2", "0/0", "1/0"], ["0/1", "1/1", "1/3", "0/2"]]
