"""A load client that shares a process with other work stamps what it reads when that work lets it (guidellm#470)."""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise

import aiohttp
import pytest

from engines.base import Endpoint
from engines.fake.adapter import FakeEngine
from orchestrator import process
from orchestrator.load import connection
from orchestrator.load.client import LoadClient
from orchestrator.load.reply import Read, Reply
from orchestrator.load.stream import Stream, as_it_is
from orchestrator.prompts import Prompt
from orchestrator.spec import WorkloadSpec
from tests.orchestrator.acting import arm, deployment
from tests.orchestrator.load.raw import END, HEAD, Wire, chunked, event, token, usage

PROMPT = Prompt("p", "chat", (("user", "Hello"),))
TOKENS, STEP_MS = 60, 20.0
BUSY_S = 1.0
URL = "/v1/chat/completions"


@pytest.fixture
async def server() -> AsyncIterator[Endpoint]:
    """A real server, which this process's work cannot hold up."""
    subject = arm(step_ms=STEP_MS)
    running = process.spawn(FakeEngine(), subject, deployment())
    await process.until_ready(running, 20.0)
    await FakeEngine().configure(running.endpoint, subject)
    yield running.endpoint
    await running.stop()


def work() -> None:
    """What a control plane does beside a load: anything, for a while."""
    time.sleep(BUSY_S)


def longest_gap(times: Sequence[float]) -> float:
    return max(after - before for before, after in pairwise(times))


async def read_in_this_process(endpoint: Endpoint) -> list[float]:
    """The pitfall: the same request, read by an event loop that does other things as well."""
    body = {"model": "fake", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": TOKENS, "stream": True}
    async with aiohttp.ClientSession() as session, session.post(endpoint.base_url + URL, json=body) as response:
        return [time.perf_counter() async for line in response.content if is_content(line)]


def is_content(line: bytes) -> bool:
    return line.startswith(b"data: {") and bool(json.loads(line[6:])["choices"])


async def test_stamps_do_not_wait_for_what_the_owner_does(server: Endpoint) -> None:
    async with LoadClient(FakeEngine(), server, WorkloadSpec()) as client:
        asyncio.get_running_loop().call_later(0.1, work)
        (answer,) = (await client.run([PROMPT], 1, TOKENS)).answers
    assert answer.error == ""
    assert len(answer.chunk_times) == TOKENS
    assert longest_gap(answer.chunk_times) < BUSY_S - 0.1
    asyncio.get_running_loop().call_later(0.1, work)
    assert longest_gap(await read_in_this_process(server)) >= BUSY_S - 0.1


async def test_the_client_has_a_process_and_counts_its_own_time(server: Endpoint) -> None:
    async with LoadClient(FakeEngine(), server, WorkloadSpec()) as client:
        result = await client.run([PROMPT], 1, TOKENS)
        assert client.worker.pid != os.getpid()
        assert client.worker.cores
    assert 0 < result.cpu_s < BUSY_S


class Hands:
    """A clock that stands still unless it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_a_stamp_is_of_when_a_read_came_and_not_of_when_there_was_time_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reads come each second, and every parsing of some takes a minute."""
    hands, feed = Hands(), Reply.feed
    monkeypatch.setattr(connection, "perf_counter", hands)

    def slowly(reply: Reply, reads: Sequence[Read]) -> None:
        hands.now += 60.0
        feed(reply, reads)

    monkeypatch.setattr(Reply, "feed", slowly)
    wire, line, stream = Wire(), connection.Connection(as_it_is), Stream(0)
    line.connection_made(wire)
    asking = asyncio.create_task(line.ask(b"request", stream, 60.0))
    await asyncio.sleep(0)
    came = []
    for piece in [HEAD, *(chunked(token(number)) for number in range(20)), chunked(usage(20) + event("[DONE]")) + END]:
        hands.now += 1.0
        came.append(hands.now)
        line.data_received(piece)
    await asking
    assert stream.times == came[1:-1]
    assert stream.ended == came[-1]
    wire.close()
