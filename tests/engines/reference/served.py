"""The API over real HTTP inside the test's own event loop, and bare server processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import uvicorn

from engines.reference.serving.api import create_app
from engines.reference.serving.loop import DecodeLoop, DecodingEngine, LoopState
from engines.reference.serving.served import Loaded, ServedModel
from engines.reference.serving.service import Service
from orchestrator.ports import free_port
from tests.engines.reference.scripted import make_options, scripted_model

SCRIPTED = Path(__file__).with_name("scripted.py")


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any

    @property
    def error(self) -> dict[str, Any]:
        """The error object; everything in it that OpenAI's clients expect is there."""
        error: dict[str, Any] = self.body["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert "\n" not in error["message"]
        return error


class Client:
    """JSON over HTTP to one server."""

    def __init__(self, base_url: str, session: aiohttp.ClientSession) -> None:
        self.base_url = base_url
        self.session = session

    async def get(self, path: str) -> Answer:
        async with self.session.get(self.base_url + path) as response:
            text = await response.text()
            return Answer(response.status, json.loads(text) if "json" in response.content_type else text)

    async def post(self, path: str, **body: Any) -> Answer:
        async with self.session.post(self.base_url + path, json=body) as response:
            return Answer(response.status, await response.json())

    async def stream(self, path: str, **body: Any) -> list[dict[str, Any]]:
        """The events of a stream, which must end with [DONE]."""
        async with self.session.post(self.base_url + path, json=body | {"stream": True}) as response:
            assert response.status == 200, await response.text()
            assert response.content_type == "text/event-stream"
            *events, done, rest = (await response.text()).split("\n\n")
        assert (done, rest) == ("data: [DONE]", "")
        return [json.loads(event.removeprefix("data: ")) for event in events]

    async def until(self, path: str, status: int) -> None:
        while True:
            with contextlib.suppress(aiohttp.ClientConnectionError):
                if (await self.get(path)).status == status:
                    return
            await asyncio.sleep(0.01)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another thread brings about."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def served(engine: DecodingEngine, model: ServedModel | None = None, **options: Any) -> AsyncIterator[Client]:
    """A ready server around an engine."""
    ready = asyncio.Event()
    settings = make_options(**options)
    ended: list[tuple[LoopState, Exception]] = []
    loop = DecodeLoop(
        lambda: Loaded(engine, model or scripted_model()),
        settings.max_batch + settings.max_queue,
        ready.set,
        lambda before, error: ended.append((before, error)),
    )
    app = create_app(Service(settings, loop))
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None, timeout_graceful_shutdown=2))
    server.config.load()
    listener = socket.create_server(("127.0.0.1", 0))
    loop.start()
    await ready.wait()
    serving = asyncio.create_task(server._serve([listener]))
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as session:
        yield Client(f"http://127.0.0.1:{listener.getsockname()[1]}", session)
    server.should_exit = True
    await serving
    assert loop.stop(timeout=5)


@contextlib.contextmanager
def server_process(**settings: Any) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`scripted.py` as a process, and its base URL; killed at the end if it still runs."""
    port = free_port()
    command = [sys.executable, str(SCRIPTED), str(port), json.dumps(settings)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=SCRIPTED.parents[3])
    try:
        yield process, f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.communicate()
