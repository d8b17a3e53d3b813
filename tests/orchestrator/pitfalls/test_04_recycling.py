"""Prompts taken again when they run out (`dataset[i % len(dataset)]`): with any cache, the second time is free."""

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.prompts import PromptError, blocks, load_prompts
from orchestrator.prompts.prompt import Prompt
from orchestrator.spec import PromptSpec
from orchestrator.validity import check
from tests.orchestrator.test_rounds import PLAN
from tests.orchestrator.test_validity import ANSWERS, TWO

WRAPPED = [replace(ANSWERS[0], prompt=Prompt(name, "chat", (("user", "the same"),))) for name in ("a", "b")]
"""What the pitfall would send: one text under two names."""


def test_more_prompts_than_there_are_is_an_error() -> None:
    there = len(load_prompts(PromptSpec()).prompts)
    with pytest.raises(PromptError, match="none is used twice"):
        load_prompts(PromptSpec(count=there + 1))


def test_a_text_under_two_names_is_an_error(tmp_path: Path) -> None:
    row = '{{"id": "{}", "task": "chat", "prompt": "the same"}}\n'
    path = tmp_path / "prompts.jsonl"
    path.write_text(row.format("a") + row.format("b"))
    with pytest.raises(PromptError, match="the same prompt"):
        load_prompts(PromptSpec(set="file", path=str(path)))


def test_no_prompt_is_in_two_blocks() -> None:
    dealt = blocks(PLAN.prompt_set, 6, 0)
    names = [prompt.prompt_id for block in dealt for prompt in block]
    assert len(set(names)) == len(names) == len(PLAN.prompt_set.prompts)


def test_a_trial_that_sent_a_prompt_twice_does_not_count() -> None:
    assert check(ANSWERS, 1, TWO) == ""
    assert check(WRAPPED, 1, TWO) == "the prompt a was sent 2 times"
