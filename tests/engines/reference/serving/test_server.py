"""The server as a process: loading, draining, dying."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from engines.reference.server import listen
from tests.engines.reference.served import Client, server_process

STREAM: dict[str, Any] = {"prompt": "x", "temperature": 0, "max_tokens": 100, "stream": True}


@contextlib.asynccontextmanager
async def process(**settings: Any) -> AsyncIterator[tuple[subprocess.Popen[str], Client]]:
    with server_process(**settings) as (child, url):
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session:
            yield child, Client(url, session)


def test_connections_send_at_once() -> None:
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def ended(child: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and log."""
    _, log = await asyncio.to_thread(child.communicate, timeout=30)
    return child.returncode, log


async def begin(client: Client, **changes: Any) -> aiohttp.ClientResponse:
    response = await client.session.post(client.base_url + "/v1/completions", json=STREAM | changes)
    assert response.status == 200
    await response.content.readuntil(b"\n\n")
    return response


async def test_health_answers_503_while_loading_and_200_after() -> None:
    async with process(load_s=1.0) as (child, client):
        await client.until("/health", 503)
        early = await client.post("/v1/completions", prompt="x")
        metrics = await client.get("/metrics")
        await client.until("/health", 200)
        late = await client.post("/v1/completions", prompt="x")
        child.send_signal(signal.SIGTERM)
        code, log = await ended(child)
    assert (early.status, early.error["type"], metrics.status) == (503, "service_unavailable_error", 200)
    assert (late.status, code) == (200, 0)
    assert [line for line in log.splitlines() if "ready after" in line]
    assert "/v1/completions" not in log


async def test_a_failed_load_is_one_line_and_exit_code_2() -> None:
    async with process(load_error="folder/config.json: no such file") as (child, _):
        code, log = await ended(child)
    assert code == 2
    assert log.splitlines()[-1].endswith("cannot load: folder/config.json: no such file")
    assert "Traceback" not in log


async def test_sigterm_lets_running_requests_finish() -> None:
    async with process(answer="y" * 60, chunk=1, step_s=0.02) as (child, client):
        await client.until("/health", 200)
        response = await begin(client)
        child.send_signal(signal.SIGTERM)
        rest = await response.text()
        code, _ = await ended(child)
        with pytest.raises(aiohttp.ClientConnectionError):
            await client.get("/health")
    assert rest.endswith("data: [DONE]\n\n")
    assert rest.count('"text":"y"') == 59
    assert code == 0


async def test_sigterm_waits_no_longer_than_the_grace_time() -> None:
    async with process(answer="y" * 2000, chunk=1, step_s=0.05, grace_s=1) as (child, client):
        await client.until("/health", 200)
        response = await begin(client, max_tokens=250)
        child.send_signal(signal.SIGTERM)
        with contextlib.suppress(aiohttp.ClientError):
            assert "[DONE]" not in await response.text()
        code, _ = await ended(child)
    assert code == 0


async def test_sigterm_while_loading_ends_the_process() -> None:
    async with process(load_s=25.0, grace_s=1) as (child, client):
        await client.until("/health", 503)
        child.send_signal(signal.SIGTERM)
        code, _ = await ended(child)
    assert code == 0


async def test_a_dead_engine_is_told_and_ends_the_process() -> None:
    async with process(answer="y" * 60, chunk=1, step_s=0.02, die_at_step=10) as (child, client):
        await client.until("/health", 200)
        response = await begin(client)
        events = [json.loads(line[6:]) for line in (await response.text()).split("\n\n") if "{" in line]
        await asyncio.sleep(0.4)
        health = await client.get("/health")
        code, log = await ended(child)
    assert "stopped after a fault" in events[-1]["error"]["message"]
    assert (health.status, code) == (500, 1)
    assert "RuntimeError: scripted death" in log


async def test_a_client_that_leaves_frees_the_server() -> None:
    async with process(answer="y" * 2000, chunk=1, step_s=0.02) as (_, client):
        await client.until("/health", 200)
        response = await begin(client, max_tokens=250)
        assert (await client.get("/server_info")).body["running"] == 1
        response.close()
        while (await client.get("/server_info")).body["running"]:  # noqa: ASYNC110 (another process)
            await asyncio.sleep(0.01)
        steps = (await client.get("/server_info")).body["stages"]["steps"]
        await asyncio.sleep(0.2)
        assert (await client.get("/server_info")).body["stages"]["steps"] == steps < 250


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "engines.reference.server", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--target", "x", "--method", "ddtree"], "needs a budget"),
        (["--target", "x", "--method", "dflash"], "needs --drafter"),
        (["--target", "x", "--threads", "0"], "at least 1"),
        (["--target", "x", "--max-queue", "many"], "whole number"),
        ([], "--target"),
    ],
)
def test_arguments_that_make_no_sense_end_with_2(arguments: list[str], says: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr.splitlines()[-1]


def test_a_folder_that_holds_no_model_ends_with_2(tmp_path: Path) -> None:
    done = run("--target", str(tmp_path), "--port", "0")
    assert done.returncode == 2
    assert str(tmp_path) in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_the_server_binds_its_port_without_torch() -> None:
    code = "import sys, engines.reference.server; print('torch' in sys.modules, 'transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
