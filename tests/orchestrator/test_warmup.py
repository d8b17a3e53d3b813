from collections.abc import Iterator, Sequence
from typing import cast

import pytest

from engines.base import EngineError
from orchestrator.answer import Answer
from orchestrator.load.client import LoadClient, LoadResult
from orchestrator.prompts import Prompt
from orchestrator.spec import WarmupSpec
from orchestrator.warmup import Warmup, warm_up

PROMPTS = [Prompt(f"p-{n}", "chat", ()) for n in range(4)]


class ScriptedClient:
    """Answers every request of a round in the round's scripted seconds a token; NaN stands for a failure."""

    def __init__(self, seconds: Sequence[float]) -> None:
        self._seconds: Iterator[float] = iter(seconds)
        self.rounds: list[tuple[list[str], int, int]] = []

    async def run(self, prompts: Sequence[Prompt], concurrency: int, max_tokens: int) -> LoadResult:
        self.rounds.append(([prompt.prompt_id for prompt in prompts], concurrency, max_tokens))
        per_token = next(self._seconds)
        failed = per_token != per_token
        answer = {"sent": 0.0, "first": 1.0, "last": 1.0 + 9 * per_token, "first_chunk_tokens": 1, "output_tokens": 10}
        return LoadResult([Answer(p, 0.0, **answer, error="cut" if failed else "") for p in prompts])  # type: ignore[arg-type]


async def warmed(seconds: Sequence[float], concurrency: int = 1, **spec: object) -> tuple[Warmup, ScriptedClient]:
    client = ScriptedClient(seconds)
    settings = WarmupSpec.model_validate(spec)
    return await warm_up(cast(LoadClient, client), PROMPTS, concurrency, settings), client


async def test_it_ends_when_two_rounds_in_a_row_agree() -> None:
    warmup, _ = await warmed([9.0, 3.0, 1.0, 1.05, 77.0], max_requests=8, tolerance=0.1)
    assert (warmup.requests, warmup.flat) == (4, True)
    assert warmup.seconds_per_token == pytest.approx((9.0, 3.0, 1.0, 1.05))


async def test_it_gives_up_and_says_so() -> None:
    warmup, _ = await warmed([8.0, 4.0, 2.0], max_requests=3)
    assert (warmup.requests, warmup.flat) == (3, False)


async def test_it_sends_at_least_what_was_asked_for() -> None:
    warmup, _ = await warmed([1.0] * 5, min_requests=4)
    assert (warmup.requests, warmup.flat) == (4, True)


async def test_a_round_repeats_the_same_prompts_at_the_trials_concurrency() -> None:
    warmup, client = await warmed([1.0, 1.0], concurrency=3, max_tokens=5)
    assert client.rounds == [(["p-0", "p-1", "p-2"], 3, 5)] * 2
    assert warmup.requests == 6


async def test_a_failed_request_is_an_engine_error() -> None:
    with pytest.raises(EngineError, match=r"^warm-up request p-0: cut$"):
        await warmed([1.0, float("nan")])
