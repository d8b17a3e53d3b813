"""The fake engine as the control plane uses it: started as a process, asked over HTTP, failing on order."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from engines import client
from engines.base import Arm, Deployment, Endpoint, EngineError, IdentityError, Method, check_identity
from engines.fake.adapter import FakeEngine
from orchestrator.ports import free_port

ENGINE = FakeEngine()
PLAIN = Arm("plain", "fake", Method.AUTOREGRESSIVE)
TREE = Arm("tree", "fake", Method.DDTREE, budget=7, options={"tokens_per_step": 2.5, "step_ms": 0.5})
DEPLOYMENT = Deployment(
    software="fake",
    interpreter=sys.executable,
    target="nowhere",
    target_digest="t1",
    drafter="nowhere",
    drafter_digest="d1",
    device="cpu",
    dtype="float32",
    threads=1,
    max_batch=4,
    max_context=100,
)
BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 20}


def start(arm: Arm) -> tuple[subprocess.Popen[str], Endpoint]:
    port = free_port()
    process = subprocess.Popen(ENGINE.command(arm, DEPLOYMENT, port), stderr=subprocess.PIPE, text=True)
    return process, ENGINE.endpoint(port)


@contextlib.asynccontextmanager
async def running(arm: Arm) -> AsyncIterator[tuple[subprocess.Popen[str], Endpoint]]:
    """The arm's server, ready and configured."""
    process, endpoint = start(arm)
    try:
        async with asyncio.timeout(20):
            while not await ENGINE.healthy(endpoint):  # noqa: ASYNC110 (another process)
                await asyncio.sleep(0.01)
        await ENGINE.configure(endpoint, arm)
        yield process, endpoint
    finally:
        process.kill()
        process.communicate()


async def ask(endpoint: Endpoint, **changes: Any) -> list[Any]:
    """The events of a streamed chat, [DONE] among them as None."""
    url = f"{endpoint.base_url}/v1/chat/completions"
    timeout = aiohttp.ClientTimeout(total=2)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.post(url, json=BODY | {"stream": True} | changes) as response,
    ):
        *events, rest = (await response.text()).split("\n\n")
    assert rest == ""
    return [None if event == "data: [DONE]" else json.loads(event.removeprefix("data: ")) for event in events]


def token_ids(events: list[Any]) -> list[int]:
    return [token for event in events if event for choice in event["choices"] for token in choice["token_ids"]]


async def test_it_is_what_the_arm_says_and_says_that_it_is_simulated() -> None:
    async with running(TREE) as (_, endpoint):
        identity = await ENGINE.identify(endpoint)
        events = await ask(endpoint)
    check_identity(identity, TREE, DEPLOYMENT)
    assert identity.settings["simulated"] is True
    assert events[-1] is None
    assert all((event["simulated"], event["model"]) == (True, "fake") for event in events[:-1])
    assert "simulated" in ENGINE.software(sys.executable)


async def test_streams_counters_and_stages_fit_together() -> None:
    async with running(TREE) as (_, endpoint):
        before = await ENGINE.counters(endpoint)
        events = await ask(endpoint)
        after, stages = await ENGINE.counters(endpoint), await ENGINE.stages(endpoint)
    *chunks, last, _ = events
    assert last["usage"]["completion_tokens"] == len(token_ids(events)) == 20
    sizes = [len(chunk["choices"][0]["token_ids"]) for chunk in chunks]
    assert sizes[0] == 1
    assert set(sizes[1:]) == {2, 3}
    mine = ENGINE.request_counters(last)
    assert mine == after - before
    assert mine is not None
    assert (mine.verify_steps, mine.emitted, mine.drafted) == (len(sizes) - 1, 19, 7 * (len(sizes) - 1))
    assert stages.steps == mine.verify_steps
    assert stages.verify + stages.draft == pytest.approx(0.0005 * stages.steps)
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["length"]


async def test_all_arms_of_one_process_give_the_same_tokens() -> None:
    assert ENGINE.command(PLAIN, DEPLOYMENT, 1) == ENGINE.command(TREE, DEPLOYMENT, 1)
    async with running(PLAIN) as (_, endpoint):
        plain = await ask(endpoint)
        await ENGINE.configure(endpoint, replace(TREE, options={"stop_after": 9}))
        tree = await ask(endpoint)
    assert token_ids(tree) == token_ids(plain)[:9]
    assert tree[-3]["choices"][0]["finish_reason"] == "stop"


async def test_full_answers_say_what_streams_say() -> None:
    async with running(TREE) as (_, endpoint):
        events = await ask(endpoint)
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{endpoint.base_url}/v1/completions", json={"prompt": "hi", "max_tokens": 20}) as response,
        ):
            whole = await response.json()
    assert whole["choices"][0]["token_ids"] == token_ids(events)
    assert whole["usage"] == events[-2]["usage"]
    assert whole["prompt_token_ids"] == events[0]["prompt_token_ids"] == [*b"hi"]


async def test_a_wrong_token_is_the_second_best_and_the_gap_is_the_arm_s() -> None:
    arm = replace(PLAIN, options={"wrong_after": 5, "gap": 0.001})
    async with running(PLAIN) as (_, endpoint):
        right = token_ids(await ask(endpoint))
        await ENGINE.configure(endpoint, arm)
        wrong = token_ids(await ask(endpoint))
        found = await ENGINE.ranking(endpoint, [*b"hi", *right[:5]])
    assert right[:5] == wrong[:5]
    assert found.token_ids == (right[5], wrong[5])
    assert found.regret(wrong[5]) == pytest.approx(0.001)


def test_arms_with_bad_options_are_refused() -> None:
    with pytest.raises(EngineError, match="no option 'x'"):
        ENGINE.validate(replace(PLAIN, options={"x": 1}), DEPLOYMENT)
    ENGINE.validate(TREE, DEPLOYMENT)


@pytest.mark.parametrize("answer", [{}, {"token_ids": [1], "log_probs": None}, {"token_ids": 1, "log_probs": [0.0]}])
async def test_a_ranking_that_cannot_be_read_is_an_engine_error(
    monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any]
) -> None:
    async def odd(*_: object) -> dict[str, Any]:
        return answer

    monkeypatch.setattr(client, "post_json", odd)
    with pytest.raises(EngineError, match=r"127\.0\.0\.1:1: the ranking cannot be read"):
        await ENGINE.ranking(ENGINE.endpoint(1), [1])


async def test_a_failure_waits_for_its_number_of_requests() -> None:
    async with running(replace(PLAIN, options={"fail": "error", "fail_after": 2})) as (_, endpoint):
        outcomes = [["error" in (event or {}) for event in await ask(endpoint)] for _ in range(3)]
    assert [any(outcome) for outcome in outcomes] == [False, False, True]


async def test_start_can_fail() -> None:
    process, endpoint = start(replace(PLAIN, options={"fail": "start"}))
    _, log = await asyncio.to_thread(process.communicate, timeout=20)
    assert (process.returncode, await ENGINE.healthy(endpoint)) == (1, False)
    assert "(simulated): error: scripted failure at start" in log


@pytest.mark.parametrize("options", [{"fail": "never_ready"}, {"ready_after_s": 30.0}])
async def test_it_can_stay_unready(options: dict[str, Any]) -> None:
    process, endpoint = start(replace(PLAIN, options=options))
    try:
        async with asyncio.timeout(20), aiohttp.ClientSession() as session:
            while True:
                with contextlib.suppress(aiohttp.ClientConnectionError):
                    async with session.get(f"{endpoint.base_url}/health") as response:
                        assert response.status == 503
                        break
                await asyncio.sleep(0.01)
        assert not await ENGINE.healthy(endpoint)
    finally:
        process.kill()
        process.communicate()


async def test_it_can_end_in_the_middle_of_an_answer() -> None:
    async with running(replace(PLAIN, options={"fail": "exit"})) as (process, endpoint):
        with pytest.raises(aiohttp.ClientError):
            await ask(endpoint)
        assert await asyncio.to_thread(process.wait, timeout=20) == 1


async def test_it_can_break_answers_in_every_way() -> None:
    async with running(PLAIN) as (_, endpoint):

        async def fail(way: str) -> list[Any]:
            await ENGINE.configure(endpoint, replace(PLAIN, options={"fail": way}))
            return await ask(endpoint)

        with pytest.raises(aiohttp.ClientError):
            await fail("cut")
        with pytest.raises(json.JSONDecodeError):
            await fail("garbage")
        assert (await fail("error"))[-2]["error"]["message"] == "fake error"
        assert all("usage" not in event for event in await fail("no_usage") if event)
        await fail("identity")
        with pytest.raises(IdentityError):
            check_identity(await ENGINE.identify(endpoint), PLAIN, DEPLOYMENT)
        with pytest.raises(TimeoutError):
            await fail("hang")
        await ENGINE.configure(endpoint, PLAIN)
        assert (await ask(endpoint))[-1] is None


async def test_configure_waits_for_idleness() -> None:
    async with running(replace(PLAIN, options={"step_ms": 100.0})) as (_, endpoint):
        asked = asyncio.create_task(ask(endpoint, max_tokens=8))
        await asyncio.sleep(0.2)
        with pytest.raises(EngineError, match="HTTP 409: fake: 1 requests are running"):
            await ENGINE.configure(endpoint, PLAIN)
        await asked
        await ENGINE.configure(endpoint, PLAIN)
