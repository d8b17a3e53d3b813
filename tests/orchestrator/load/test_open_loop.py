"""Open loops against a real server: on time whatever it does, and stopped when it cannot keep up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from engines.fake.adapter import FakeEngine
from orchestrator.load.arrivals import Arrival
from orchestrator.load.client import LoadClient, LoadResult
from orchestrator.load.loops import NOT_SENT, STOPPED
from orchestrator.prompts import Prompt
from orchestrator.spec import WorkloadSpec
from tests.orchestrator.load.raw import CUT, HEAD, RawServer, token, usage, whole

ANSWER = whole(token(1), token(2, finish="stop"), usage(2))


class OneAtATime(RawServer):
    """Works on one answer at a time, each for so long."""

    def __init__(self, seconds: float) -> None:
        super().__init__([ANSWER])
        self._seconds = seconds
        self._turn = asyncio.Lock()

    async def respond(self, writer: asyncio.StreamWriter) -> None:
        async with self._turn:
            await asyncio.sleep(self._seconds)
        await super().respond(writer)


@contextlib.asynccontextmanager
async def connected(server: RawServer, timeout_s: float = 20.0) -> AsyncIterator[LoadClient]:
    spec = WorkloadSpec(request_timeout_s=timeout_s)
    async with server.running() as endpoint, LoadClient(FakeEngine(), endpoint, spec) as client:
        yield client


async def sent(server: RawServer, gap: float, count: int, slots: int = 1) -> LoadResult:
    prompts = [Prompt(f"p-{number}", "chat", (("user", "Hello"),)) for number in range(count)]
    arrivals = [Arrival(gap * number, 9) for number in range(count)]
    async with connected(server) as client:
        return await client.run(prompts, slots, 9, arrivals)


async def test_requests_go_at_their_times_and_wait_for_no_answer() -> None:
    result = await sent(OneAtATime(0.15), gap=0.05, count=8)
    assert result.failure == ""
    begin = result.answers[0].scheduled
    for number, answer in enumerate(result.answers):
        assert answer.scheduled - begin == pytest.approx(0.05 * number, abs=1e-6)
        assert answer.sent >= answer.scheduled
    inside = [answer for answer in result.answers if answer.sent < result.answers[0].last]
    assert len(inside) >= 2, "the second request did not wait for the first answer"
    waits = [answer.first - answer.scheduled for answer in result.answers]
    assert waits[-1] > 0.6, "a queue shows in the time to the first token, all of it"


async def test_a_server_that_cannot_keep_up_is_over_saturated_and_the_load_stops() -> None:
    result = await sent(OneAtATime(0.2), gap=0.01, count=120)
    assert result.failure.startswith("over-saturated: ")
    errors = [answer.error for answer in result.answers]
    assert len(errors) == 120
    assert set(errors) <= {"", STOPPED}
    assert errors.count(STOPPED) > 60
    answered = [answer for answer in result.answers if not answer.error]
    assert all(answer.output_tokens == 2 for answer in answered)


async def test_after_a_failed_request_no_further_one_is_sent() -> None:
    result = await sent(RawServer([ANSWER], [HEAD, CUT]), gap=0.1, count=6)
    errors = [answer.error for answer in result.answers]
    assert errors[0] == ""
    assert errors[1].startswith("connection lost: ")
    assert errors[-1] == NOT_SENT
    assert result.failure == f"request p-1: {errors[1]}"


async def test_a_connection_that_lay_idle_is_not_used_again() -> None:
    server = RawServer([ANSWER])
    await sent(server, gap=2.3, count=2)
    assert server.connections == 2
