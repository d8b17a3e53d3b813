"""Text past its end loops, and a loop is easily drafted: answers end where the model ends them (vllm#28227)."""

from typing import Any

import pytest

from engines.base import Method
from engines.fake.adapter import FakeEngine
from engines.fake.script import Script
from engines.registry import engine_names, get_engine
from orchestrator.load.client import LoadClient
from orchestrator.prompts import Prompt
from orchestrator.spec import WorkloadSpec
from tests.orchestrator.load.test_client import load, serve
from tests.orchestrator.sample import frame, request
from tests.orchestrator.test_metrics import summary

FORBIDDEN = {"ignore_eos", "min_tokens", "min_new_tokens", "stop", "stop_token_ids"}
PROMPT = Prompt("p", "chat", (("user", "Hello"),))


def keys(value: Any) -> set[str]:
    """Every key in it, at whatever depth."""
    if isinstance(value, dict):
        return set(value) | {key for inner in value.values() for key in keys(inner)}
    return {key for inner in value for key in keys(inner)} if isinstance(value, list) else set()


@pytest.mark.parametrize("name", engine_names())
def test_no_engine_is_asked_to_go_on_past_the_end(name: str) -> None:
    assert not keys(dict(get_engine(name).request_fields())) & FORBIDDEN


async def test_no_request_asks_for_it() -> None:
    _, served = await load(Script(), prompts=[PROMPT])
    assert served.bodies
    assert not keys(served.bodies) & FORBIDDEN


async def test_an_answer_that_ends_by_itself_has_its_own_length() -> None:
    spec = WorkloadSpec(max_tokens=9)
    async for served in serve(Script(Method.DFLASH, stop_after=5)):
        async with LoadClient(FakeEngine(), served.endpoint, spec) as client:
            (answer,) = (await client.run([PROMPT], 1, spec.max_tokens)).answers
    assert (answer.output_tokens, answer.finish_reason) == (5, "stop")


def test_the_share_that_was_cut_short_is_reported() -> None:
    rows = [request(prompt_id=str(number), finish_reason="length" if number < 3 else "stop") for number in range(4)]
    assert summary(frame(*rows)).truncated_share == 0.75
