"""A chunk holds as many tokens as a step accepted: counting chunks, or N - 1, makes TPOT another number
(sglang#12064, vllm#50600)."""

from dataclasses import replace

import pytest

from engines.fake.adapter import FakeEngine
from orchestrator.answer import Answer
from orchestrator.load.client import LoadClient
from orchestrator.metrics import measure
from orchestrator.prompts import Prompt
from orchestrator.records import request_frame
from orchestrator.spec import WorkloadSpec
from tests.orchestrator.load.raw import END, HEAD, RawServer, chunked, event, token, usage

PROMPT = Prompt("p", "chat", (("user", "Hello"),))


async def answered() -> Answer:
    """Eight tokens: four in the first chunk, then one and three."""
    writes = [HEAD + chunked(token(1, 2, 3, 4)), chunked(token(5)), chunked(token(6, 7, 8, finish="stop"))]
    server = RawServer([*writes, chunked(usage(8)) + chunked(event("[DONE]")) + END])
    async with server.running() as endpoint, LoadClient(FakeEngine(), endpoint, WorkloadSpec()) as client:
        (answer,) = (await client.run([PROMPT], 1, 9)).answers
    assert answer.error == ""
    return answer


async def test_tokens_are_the_usages_and_each_chunks_are_kept() -> None:
    answer = await answered()
    assert (answer.output_tokens, answer.chunks, answer.chunk_tokens) == (8, 3, [4, 1, 3])
    assert sum(answer.chunk_tokens) == answer.output_tokens


async def test_the_first_chunks_tokens_leave_the_denominator() -> None:
    answer = replace(await answered(), first=1.0, last=1.8)
    row = measure(request_frame([answer.row(0.0)])).iloc[0]
    by_chunks, by_all_but_one = 0.8 / (answer.chunks - 1), 0.8 / (answer.output_tokens - 1)
    assert (by_chunks, by_all_but_one) == (pytest.approx(0.4), pytest.approx(0.114, abs=1e-3)), "the pitfall"
    assert row["tpot"] == pytest.approx(0.8 / 4)
    assert answer.seconds_per_token() == pytest.approx(row["tpot"]), "the warm-up counts in the same way"


async def test_an_answer_of_one_chunk_has_no_tpot() -> None:
    one = [HEAD + chunked(token(1, 2, 3, finish="stop")) + chunked(usage(3)) + chunked(event("[DONE]")) + END]
    async with RawServer(one).running() as endpoint, LoadClient(FakeEngine(), endpoint, WorkloadSpec()) as client:
        result = await client.run([PROMPT], 1, 9)
    assert result.failure == ""
    assert measure(request_frame([result.answers[0].row(0.0)]))["tpot"].isna().all()
