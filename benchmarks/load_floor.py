"""The least that streams can cost a reader on uvloop: it stamps each read and keeps its bytes; nothing is parsed before
the load is over. No load generator: what it shows is how much of the others' CPU is the kernel's and the loop's.

    python load_floor.py PORT STREAMS REQUESTS TOKENS OUTPUT
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import uvloop

_END = b"0\r\n\r\n"

Answer = list[tuple[float, bytes]]
"""Reads with the moment each came."""


class Connection(asyncio.Protocol):
    """Asks again and again on one connection for as long as there is something to ask."""

    def __init__(self, requests: Iterator[bytes], answers: list[Answer], closed: asyncio.Future[None]) -> None:
        self._requests = requests
        self._answers = answers
        self._closed = closed

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._reads.append((time.perf_counter(), data))
        if data.endswith(_END):
            self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed.set_result(None)

    def _ask(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self._transport.close()
            return
        self._reads: Answer = []
        self._answers.append(self._reads)
        self._transport.write(request)


async def read(port: int, streams: int, requests: int, tokens: int) -> list[Answer]:
    """All answers, `streams` at a time."""
    body: dict[str, Any] = {"model": "mock", "messages": [{"role": "user", "content": "What comes next, and why?"}]}
    text = json.dumps(body | {"stream": True, "max_tokens": tokens, "return_token_ids": True}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: mock\r\nContent-Length: %d\r\n\r\n" % len(text)
    loop, answers = asyncio.get_running_loop(), list[Answer]()
    pending, closed = iter([head + text] * requests), [loop.create_future() for _ in range(streams)]
    for each in closed:
        await loop.create_connection(partial(Connection, pending, answers, each), "127.0.0.1", port)
    await asyncio.gather(*closed)
    return answers


def told(answer: Answer) -> dict[str, Any]:
    """The number of the request, when its first chunk came, and the gaps between its chunks."""
    times = [at for at, data in answer for _ in range(data.count(b'"content"'))]
    found = re.search(rb"\br(\d+) ", answer[0][1] + answer[1][1])
    return {
        "serial": int(found.group(1)) if found else None,
        "first": times[0],
        "gaps": [after - before for before, after in pairwise(times)],
    }


def main() -> None:
    *numbers, output = sys.argv[1:]
    port, streams, requests, tokens = map(int, numbers)
    answers = uvloop.run(read(port, streams, requests, tokens))
    Path(output).write_text(json.dumps([told(answer) for answer in answers]))


if __name__ == "__main__":
    main()
