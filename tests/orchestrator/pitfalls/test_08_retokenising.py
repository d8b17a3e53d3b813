"""A text tokenised again need not give the tokens that were generated (inference-perf#564): only the server knows."""

import subprocess
import sys

import pytest

from engines.fake.adapter import FakeEngine
from orchestrator.answer import Answer
from orchestrator.load.client import LoadClient
from orchestrator.prompts import Prompt
from orchestrator.spec import WorkloadSpec
from tests.orchestrator.load.raw import RawServer, token, usage, whole

PROMPT = Prompt("p", "chat", (("user", "Hello"),))


async def answered(*events: bytes) -> Answer:
    server = RawServer([whole(*events)])
    async with server.running() as endpoint, LoadClient(FakeEngine(), endpoint, WorkloadSpec()) as client:
        (answer,) = (await client.run([PROMPT], 1, 9)).answers
    return answer


async def test_tokens_without_text_count_and_text_counts_nothing() -> None:
    """Three byte tokens of one emoji: any tokeniser finds another number in the text alone."""
    answer = await answered(token(7, text=""), token(8, text=""), token(9, text="🙂", finish="stop"), usage(3))
    assert (answer.output_tokens, answer.token_ids, answer.text, answer.error) == (3, [7, 8, 9], "🙂", "")
    assert len(answer.text.split()) != answer.output_tokens
    merged = await answered(token(1, text="many words in one token", finish="stop"), usage(1))
    assert (merged.output_tokens, merged.error) == (1, "")


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([token(1, finish="stop")], "the server sent no usage"),
        ([token(1, finish="stop"), usage(2)], "1 token ids came, usage says 2 tokens"),
        ([token(text="words without ids", finish="stop"), usage(3)], "0 token ids came, usage says 3 tokens"),
    ],
)
async def test_without_the_servers_count_a_request_has_failed(events: list[bytes], reason: str) -> None:
    assert (await answered(*events)).error == reason


def test_the_measuring_side_has_no_tokeniser() -> None:
    code = "import sys, orchestrator.measure; print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"tokenizers", "transformers", "tiktoken", "sentencepiece"} & set(told.split())
