"""The real pair: speculative text equals plain greedy decoding token by token, in float32, on the whole prompt set."""

import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from engines.reference.decoding.engine import Engine, Method
from orchestrator.prompts import load_prompts
from orchestrator.spec import PromptSpec
from tests.engines.reference.conftest import Pair
from tests.engines.reference.running import Answer, drain, request

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(1200)]

LONGEST = 40
CONTEXT = 512


@dataclass(frozen=True)
class Reference:
    """A prompt of the product's set and its greedy continuation."""

    prompt: list[int]
    text: list[int]


@pytest.fixture(scope="module", autouse=True)
def _all_cores() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def references(real_pair: Pair) -> list[Reference]:
    """Plain greedy texts of every prompt, proved by transformers: its argmax after every prefix is the next token."""
    tokenizer = AutoTokenizer.from_pretrained(real_pair.target_folder)
    judge = AutoModelForCausalLM.from_pretrained(real_pair.target_folder, dtype=torch.float32)
    prompts = [_tokens(tokenizer, prompt.messages) for prompt in load_prompts(PromptSpec()).prompts]
    engine = Engine(real_pair.target, None, Method("autoregressive"), 4, CONTEXT)
    for index, prompt in enumerate(prompts):
        engine.submit(request(str(index), prompt, max_tokens=LONGEST))
    answers = drain(engine)
    found = [Reference(prompt, answers[str(index)].tokens) for index, prompt in enumerate(prompts)]
    for item in found:
        with torch.inference_mode():
            logits = judge(torch.tensor([item.prompt + item.text])).logits[0]
        assert logits[len(item.prompt) - 1 : -1].argmax(-1).tolist() == item.text
    return found


def _tokens(tokenizer: Any, messages: Sequence[tuple[str, str]]) -> list[int]:
    chat = [{"role": role, "content": content} for role, content in messages]
    return list(tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False))


def run(pair: Pair, method: Method, work: Sequence[Reference], draw: random.Random) -> list[Answer]:
    """All of `work` in random order, batch and lengths; every text is checked."""
    engine = Engine(pair.target, pair.drafter, method, draw.randrange(1, 6), CONTEXT)
    order = draw.sample(range(len(work)), len(work))
    lengths = {index: draw.randrange(LONGEST // 2, LONGEST + 1) for index in order}
    for index in order:
        engine.submit(request(str(index), work[index].prompt, max_tokens=lengths[index]))
    answers = drain(engine)
    for index in order:
        assert answers[str(index)].tokens == work[index].text[: lengths[index]]
    return [answers[str(index)] for index in order]


def acceptance_length(answers: Sequence[Answer]) -> float:
    return 1 + sum(a.stats.accepted for a in answers) / sum(a.stats.verify_steps for a in answers)


def test_linear_drafts_leave_every_text_as_it_is(real_pair: Pair, references: list[Reference]) -> None:
    run(real_pair, Method("dflash"), references, random.Random(1))


def test_trees_of_any_budget_leave_every_text_as_it_is(real_pair: Pair, references: list[Reference]) -> None:
    draw = random.Random(2)
    shuffled = draw.sample(references, len(references))
    for part in range(5):
        method = Method("ddtree", draw.randrange(1, 64), chain=part == 0)
        run(real_pair, method, shuffled[part::5], draw)


def test_acceptance_rises_from_the_chain_to_wider_trees(real_pair: Pair, references: list[Reference]) -> None:
    some = references[::8]
    methods = (Method("dflash"), Method("ddtree", 7), Method("ddtree", 31))
    lengths = [acceptance_length(run(real_pair, method, some, random.Random(3))) for method in methods]
    assert 1.8 < lengths[0] < lengths[1] < lengths[2]
