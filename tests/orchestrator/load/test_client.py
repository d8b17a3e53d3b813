import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
from aiohttp import web

from engines.base import Endpoint, EngineError, Method
from engines.fake.adapter import FakeEngine
from engines.fake.script import Script
from engines.fake.server import FakeServer
from orchestrator.load import worker
from orchestrator.load.arrivals import Arrival
from orchestrator.load.client import LoadClient, LoadResult
from orchestrator.load.loops import NOT_SENT
from orchestrator.prompts import Prompt
from orchestrator.spec import WorkloadSpec
from tests.orchestrator.processes import VARIABLE, eventually, marked, new_mark

PROMPTS = [Prompt(f"p-{n}", "chat", (("system", "Be brief."), ("user", f"Question {n}"))) for n in range(6)]


class Served:
    """The fake server inside the test, with the bodies that it was sent."""

    def __init__(self, endpoint: Endpoint, bodies: list[dict[str, Any]], busiest: list[int]) -> None:
        self.endpoint = endpoint
        self.bodies = bodies
        self.busiest = busiest


async def serve(script: Script) -> AsyncIterator[Served]:
    bodies: list[dict[str, Any]] = []
    busiest, running = [0], [0]

    @web.middleware
    async def record(request: web.Request, handler: Any) -> web.StreamResponse:
        bodies.append(await request.json())
        running[0] += 1
        busiest[0] = max(busiest[0], running[0])
        try:
            response: web.StreamResponse = await handler(request)
        finally:
            running[0] -= 1
        return response

    app = FakeServer(script, {}).app()
    app.middlewares.append(record)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    yield Served(Endpoint(f"http://127.0.0.1:{port}", "fake"), bodies, busiest)
    await runner.cleanup()


async def load(
    script: Script, concurrency: int = 1, prompts: list[Prompt] = PROMPTS, **workload: Any
) -> tuple[LoadResult, Served]:
    spec = WorkloadSpec.model_validate({"max_tokens": 9, **workload})
    async for served in serve(script):
        async with LoadClient(FakeEngine(), served.endpoint, spec) as client:
            return await client.run(prompts, concurrency, spec.max_tokens), served
    raise AssertionError


async def test_every_prompt_is_answered_exactly_once_and_never_more_at_once_than_asked() -> None:
    result, served = await load(Script(Method.DFLASH), concurrency=3)
    assert result.failure == ""
    assert sorted(answer.prompt.prompt_id for answer in result.answers) == [prompt.prompt_id for prompt in PROMPTS]
    assert len(served.bodies) == len(PROMPTS)
    assert served.busiest == [3]


async def test_tokens_are_the_servers_and_the_first_chunk_is_told_apart() -> None:
    result, _ = await load(Script(Method.DFLASH, tokens_per_step=4))
    for answer in result.answers:
        assert (answer.output_tokens, answer.first_chunk_tokens, answer.chunks) == (9, 1, 3)
        assert answer.counters is not None
        assert answer.counters.emitted == 8
        assert answer.scheduled <= answer.sent <= answer.first <= answer.last


async def test_a_worker_schedules_its_next_request_when_its_last_is_answered() -> None:
    answers = (await load(Script(step_ms=3)))[0].answers
    for before, after in pairwise(answers):
        assert after.scheduled >= before.last


async def test_the_body_carries_the_workload() -> None:
    _, served = await load(Script(), prompts=PROMPTS[:1], temperature=0.7, top_p=0.9, top_k=20, seed=5)
    body = served.bodies[0]
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Question 0"}]
    assert (body["temperature"], body["top_p"], body["top_k"], body["seed"]) == (0.7, 0.9, 20, 5)
    assert (body["max_tokens"], body["stream"], body["return_token_ids"]) == (9, True, True)
    assert body["stream_options"] == {"include_usage": True}
    _, plain = await load(Script(), prompts=PROMPTS[:1])
    assert "top_k" not in plain.bodies[0]


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        ("cut", "connection lost: "),
        ("garbage", "a chunk is not JSON: {fake garbage"),
        ("error", "the server broke off: fake error"),
        ("no_usage", "the server sent no usage"),
        ("hang", "no complete answer within 0.3 s"),
    ],
)
async def test_a_failed_request_says_why_and_ends_the_load(failure: str, message: str) -> None:
    result, served = await load(Script(fail=failure, fail_after=2), request_timeout_s=0.3)
    errors = [answer.error for answer in result.answers]
    assert errors[:2] == ["", ""]
    assert errors[2].startswith(message)
    assert errors[3:] == [NOT_SENT] * 3
    assert result.failure == f"request p-2: {errors[2]}"
    assert result.answers[2].finish_reason == "error"
    assert len(served.bodies) == 3


async def test_a_server_that_is_not_there_is_a_lost_connection() -> None:
    async with LoadClient(FakeEngine(), Endpoint("http://127.0.0.1:9", "fake"), WorkloadSpec()) as client:
        result = await client.run(PROMPTS[:1], 1, 4)
    assert result.failure.startswith("request p-0: connection lost: ")


async def test_a_refusal_shows_the_servers_message() -> None:
    async def refuse(_: web.Request) -> web.Response:
        return web.json_response({"error": {"message": "context\nis too long"}}, status=400)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", refuse)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    endpoint = Endpoint(f"http://127.0.0.1:{runner.addresses[0][1]}", "fake")
    async with LoadClient(FakeEngine(), endpoint, WorkloadSpec()) as client:
        result = await client.run(PROMPTS, 2, 4)
    await runner.cleanup()
    assert result.failure == "request p-0: HTTP 400: context is too long"


@contextlib.asynccontextmanager
async def started(script: Script, **workload: Any) -> AsyncIterator[LoadClient]:
    spec = WorkloadSpec.model_validate({"max_tokens": 9, **workload})
    async for served in serve(script):
        async with LoadClient(FakeEngine(), served.endpoint, spec) as client:
            yield client


async def test_a_client_that_is_held_up_shows_as_lag_and_the_wait_as_ttft() -> None:
    arrivals = [Arrival(0.2 * number, 9) for number in range(3)]
    async with started(Script(ttft_ms=2.0)) as client:
        asyncio.get_running_loop().call_later(0.1, os.kill, client.worker.pid, signal.SIGSTOP)
        asyncio.get_running_loop().call_later(0.6, os.kill, client.worker.pid, signal.SIGCONT)
        result = await client.run(PROMPTS[:3], 1, 9, arrivals)
    lags = [answer.sent - answer.scheduled for answer in result.answers]
    assert lags[1] > 0.2
    assert result.answers[1].first - result.answers[1].scheduled > 0.2
    assert result.lag_s == pytest.approx(max(lags))


async def test_a_client_that_dies_is_one_line_and_leaves_nothing() -> None:
    async with started(Script(step_ms=50.0)) as client:
        asyncio.get_running_loop().call_later(0.2, os.kill, client.worker.pid, signal.SIGKILL)
        result = await client.run(PROMPTS, 2, 9)
        assert result.failure == "the load client ended by signal 9"
        assert len(result.answers) == len(PROMPTS)
        assert (await client.run(PROMPTS, 2, 9)).failure == "the load client ended by signal 9"
        pid = client.worker.pid
    assert not psutil.pid_exists(pid)


async def test_a_client_that_falls_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async with started(Script(step_ms=50.0)) as client:
        monkeypatch.setattr(worker, "SILENCE_S", 0.3)
        os.kill(client.worker.pid, signal.SIGSTOP)
        result = await client.run(PROMPTS, 2, 9)
    assert result.failure == "the load client said nothing for 0.3 s"


async def test_a_client_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'ImportError: No module named httptools' >&2; exit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    with pytest.raises(EngineError) as caught:
        async with LoadClient(FakeEngine(), Endpoint("http://127.0.0.1:9", "fake"), WorkloadSpec()):
            pass
    assert str(caught.value) == "the load client ended with exit code 1: ImportError: No module named httptools"


async def test_what_is_no_message_ends_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    babbling = tmp_path / "python"
    babbling.write_text("#!/bin/sh\necho 'good morning, good morning'; exec sleep 60\n")
    babbling.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(babbling))
    with pytest.raises(EngineError, match=r"^the load client's message cannot be read$"):
        async with LoadClient(FakeEngine(), Endpoint("http://127.0.0.1:9", "fake"), WorkloadSpec()):
            pass


OWNER = """
import asyncio
from engines.base import Endpoint
from engines.fake.adapter import FakeEngine
from orchestrator.load.client import LoadClient
from orchestrator.spec import WorkloadSpec
from tests.orchestrator.processes import VARIABLE, eventually, marked, new_mark
async def main():
    async with LoadClient(FakeEngine(), Endpoint("http://127.0.0.1:9", "fake"), WorkloadSpec()) as client:
        print(client.worker.pid, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


async def test_the_client_ends_with_its_owner() -> None:
    mark = new_mark()
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWNER, stdout=asyncio.subprocess.PIPE, env=os.environ | {VARIABLE: mark}
    )
    assert owner.stdout is not None
    assert int(await owner.stdout.readline()) in marked(mark)
    owner.kill()
    await owner.wait()
    assert eventually(lambda: marked(mark) == {})


def test_the_child_loads_nothing_heavy() -> None:
    code = "import sys, orchestrator.load.child; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert loaded >= {"uvloop", "httptools", "orjson"}
    assert not loaded & {"pandas", "numpy", "pydantic", "ray", "aiohttp", "yaml", "psutil"}


async def test_the_owner_hears_how_far_it_is() -> None:
    heard: list[int] = []
    async with started(Script(step_ms=60.0)) as client:
        await client.run(PROMPTS[:3], 1, 9, heard=heard.append)
    assert heard
    assert all(0 <= answered < 3 for answered in heard)


async def test_a_prompt_that_is_no_text_is_an_error_of_one_line() -> None:
    broken = Prompt("p", "chat", (("user", "half a pair: \ud800"),))
    async with started(Script()) as client:
        with pytest.raises(EngineError, match="a prompt cannot be sent"):
            await client.run([broken], 1, 9)


@pytest.mark.parametrize(
    ("url", "headers", "complaint"),
    [
        ("https://127.0.0.1:9", {}, "https://127.0.0.1:9: the load client speaks http only"),
        (
            "http://127.0.0.1:9",
            {"X-Key": "a\r\nHost: b"},
            "a header of the load client's requests is no single line",
        ),
    ],
)
async def test_what_it_cannot_speak_is_said_before_it_starts(url: str, headers: dict[str, str], complaint: str) -> None:
    with pytest.raises(EngineError) as caught:
        async with LoadClient(FakeEngine(), Endpoint(url, "fake", headers), WorkloadSpec()):
            pass
    assert str(caught.value) == complaint
