"""A constant load of streaming chats on a router, every answer checked to its last byte."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import aiohttp
import pytest

from engines.base import Method
from engines.fake.script import Script

TOKENS = 40
Chat = Callable[[aiohttp.ClientSession, str], Awaitable[None]]
"""One chat with a server; ValueError for an answer that is not whole, or not the right one."""
_SCRIPT = Script(method=Method.DFLASH)


@dataclass
class Traffic:
    """What came of the requests so far. `failures`: one line each."""

    answered: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def whole(self) -> int:
        return self.answered - len(self.failures)

    @property
    def refused(self) -> int:
        """Those of the failures that had not started: nobody listened."""
        return sum(failure.startswith(aiohttp.ClientConnectorError.__name__) for failure in self.failures)

    def wait_for(self, more: int) -> None:
        """Until so many more requests ended."""
        goal, deadline = self.answered + more, time.monotonic() + 60
        while self.answered < goal:
            assert time.monotonic() < deadline, f"the traffic stands still at {self.answered} answers"
            time.sleep(0.02)


def tell(capsys: pytest.CaptureFixture[str], what: str, load: Traffic) -> None:
    """Print the numbers of a test, also where tests that pass print nothing."""
    failed, refused = len(load.failures), load.refused
    with capsys.disabled():
        print(f"\n  {what}: {load.answered} streamed requests, {failed - refused} failed or cut, {refused} refused")


@contextmanager
def traffic(port: int, at_once: int = 3, chat: Chat | None = None) -> Iterator[Traffic]:
    """Keep `at_once` chats going as long as the context lasts; what was begun is answered before it ends."""
    found, over = Traffic(), threading.Event()
    load = _load(f"http://127.0.0.1:{port}", at_once, chat or _fake_chat, found, over)
    thread = threading.Thread(target=lambda: asyncio.run(load))
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


async def ask(
    session: aiohttp.ClientSession, url: str, content: str, headers: dict[str, str], model: str = "fake"
) -> list[int]:
    """The token ids of a whole streamed answer. ValueError for one that is not whole."""
    body = {"model": model, "messages": [{"role": "user", "content": content}], "max_tokens": TOKENS, "stream": True}
    body |= {"temperature": 0, "return_token_ids": True}
    async with session.post(f"{url}/v1/chat/completions", json=body, headers=headers) as response:
        if response.status != 200:
            raise ValueError(f"HTTP {response.status}: {(await response.text())[:200]}")
        text = await response.text()
    if not text.endswith("data: [DONE]\n\n"):
        raise ValueError(f"cut after {len(text)} characters")
    chunks = [json.loads(line[6:]) for line in text.split("\n\n") if line.startswith("data: {")]
    return [token for chunk in chunks for choice in chunk["choices"] for token in choice["token_ids"]]


def expected(content: str) -> list[int]:
    """What every fake engine that is not wrong answers."""
    tokens = _SCRIPT.tokens(list(content.encode()))
    return [next(tokens) for _ in range(TOKENS)]


async def _fake_chat(session: aiohttp.ClientSession, url: str) -> None:
    content = uuid.uuid4().hex
    if await ask(session, url, content, {"X-Session-Id": content}) != expected(content):
        raise ValueError("another text")


async def _load(url: str, at_once: int, chat: Chat, found: Traffic, over: threading.Event) -> None:
    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(_converse(session, url, chat, found, over) for _ in range(at_once)))


async def _converse(
    session: aiohttp.ClientSession, url: str, chat: Chat, found: Traffic, over: threading.Event
) -> None:
    while not over.is_set():
        try:
            await chat(session, url)
        except (aiohttp.ClientError, ValueError, TimeoutError) as error:
            found.failures.append(f"{type(error).__name__}: {error}")
            await asyncio.sleep(0.05)
        found.answered += 1
