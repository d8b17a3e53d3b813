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
from orchestrator.load.client import LoadClient
from orchestrator.prompts import Prompt
from orchestrator.spec import WorkloadSpec
from tests.orchestrator.acting import arm, deployment

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
