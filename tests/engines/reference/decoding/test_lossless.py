"""The real pair: speculative text equals plain greedy decoding token by token, in float32."""

import os
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from engines.reference.decoding.engine import Engine, Method
from tests.engines.reference.conftest import Pair
from tests.engines.reference.running import Answer, drain, request

pytestmark = [pytest.mark.model, pytest.mark.slow]

QUESTIONS = [
    "Why is the sky blue?",
    "Write a Python function that returns the n-th Fibonacci number.",
    "A train travels 60 km in 1.5 hours. What is its average speed?",
    "Rewrite this politely: send me the report now.",
    "List the planets of the solar system.",
    "Translate 'good morning' to Spanish, French and German.",
]
LONGEST = 64


@pytest.fixture(scope="module", autouse=True)
def _all_cores() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def references(real_pair: Pair) -> list[tuple[list[int], list[int]]]:
    """Prompts and their greedy continuations by transformers' own model, one at a time."""
    tokenizer = AutoTokenizer.from_pretrained(real_pair.target_folder)
    model = AutoModelForCausalLM.from_pretrained(real_pair.target_folder, dtype=torch.float32)
    found: list[tuple[list[int], list[int]]] = []
    for question in QUESTIONS:
        chat = [{"role": "user", "content": question}]
        prompt: Any = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
        with torch.inference_mode():
            whole = model.generate(torch.tensor([prompt]), max_new_tokens=LONGEST, do_sample=False)
        found.append((prompt, whole[0, len(prompt) :].tolist()))
    return found


def run(pair: Pair, method: Method, work: list[tuple[list[int], list[int]]], seed: int) -> dict[str, Answer]:
    """All prompts in random order and batch, each with a length of its own; every text is checked."""
    draw = random.Random(seed)
    engine = Engine(pair.target, pair.drafter, method, draw.randrange(1, 5), 256)
    order = draw.sample(range(len(work)), len(work))
    lengths = {index: draw.randrange(LONGEST // 2, LONGEST + 1) for index in order}
    for index in order:
        engine.submit(request(str(index), work[index][0], max_tokens=lengths[index]))
    answers = drain(engine)
    for index in order:
        assert answers[str(index)].tokens == work[index][1][: lengths[index]]
    return answers


@pytest.mark.parametrize(
    "method",
    [
        Method("autoregressive"),
        Method("dflash"),
        Method("ddtree", 7, chain=True),
        Method("ddtree", random.Random(0).randrange(8, 64)),
    ],
    ids=str,
)
def test_real_text_equals_plain_greedy_decoding(
    real_pair: Pair, references: list[tuple[list[int], list[int]]], method: Method
) -> None:
    run(real_pair, method, references, seed=1)


def test_acceptance_rises_from_the_chain_to_wider_trees(
    real_pair: Pair, references: list[tuple[list[int], list[int]]]
) -> None:
    """A step of the chain emits clearly more than one token, and wider trees more still."""
    lengths = []
    for method in (Method("dflash"), Method("ddtree", 7), Method("ddtree", 31)):
        stats = [reply.stats for reply in run(real_pair, method, references, seed=2).values()]
        steps = sum(stat.verify_steps for stat in stats)
        lengths.append(1 + sum(stat.accepted for stat in stats) / steps)
    assert 1.6 < lengths[0] < lengths[1] < lengths[2]
