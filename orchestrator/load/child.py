"""The load generator's own process: `python -m orchestrator.load.child`, jobs on stdin, messages on stdout.

It ends with its owner: at the end of stdin, whatever is going on. It imports nothing heavy, so that it starts in a
fraction of a second and its garbage collector has little to look at, and collects no garbage while it measures.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import orjson
import uvloop

from orchestrator.load import frames
from orchestrator.load.connections import Connections
from orchestrator.load.loops import closed_loop, open_loop
from orchestrator.load.stream import Reader, Stream, as_it_is

BEAT_S = 1.0
"""How often the owner hears that we are alive."""

Job = dict[str, Any]


class Child:
    """Works off jobs one after another over one set of connections."""

    def __init__(self) -> None:
        self._jobs: asyncio.Queue[Job] = asyncio.Queue()
        self._answered = 0

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._listen, args=(loop,), daemon=True).start()
        _tell({"ready": sorted(os.sched_getaffinity(0))})
        hello = await self._jobs.get()
        connections = Connections(hello["host"], hello["port"], hello["timeout_s"], _reader(hello["reader"]))
        self._head = _head(hello)
        while True:
            await self._work(connections, await self._jobs.get())

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            while (job := frames.read(sys.stdin.buffer)) is not None:
                loop.call_soon_threadsafe(self._jobs.put_nowait, job)
        finally:
            os._exit(0)

    async def _work(self, connections: Connections, job: Job) -> None:
        requests = [_request(self._head, body) for body in job["bodies"]]
        self._answered = 0
        beat = asyncio.create_task(self._beat())
        began = time.process_time()
        gc.disable()
        try:
            streams, excess = await self._load(connections, job, requests)
        finally:
            gc.enable()
            beat.cancel()
        seconds = time.process_time() - began
        _tell({"streams": [stream.report() for stream in streams], "excess": excess, "cpu_s": seconds})

    async def _load(self, connections: Connections, job: Job, requests: Sequence[bytes]) -> tuple[list[Stream], str]:
        if job["offsets"] is None:
            return await closed_loop(connections, requests, job["slots"], self._note), ""
        return await open_loop(connections, requests, job["offsets"], job["slots"], self._note)

    def _note(self, stream: Stream) -> None:
        self._answered += not stream.error

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            _tell({"answered": self._answered})


def _reader(name: str) -> Reader:
    """Of an engine's dialect."""
    if not name:
        return as_it_is
    module, function = name.split(":")
    reader: Reader = getattr(import_module(module), function)
    return reader


def _head(hello: Job) -> bytes:
    lines = [f"POST {hello['path']} HTTP/1.1", f"Host: {hello['host']}:{hello['port']}"]
    lines += [f"{name}: {value}" for name, value in hello["headers"].items()]
    lines += ["Content-Type: application/json", "Accept: text/event-stream", "Content-Length: "]
    return "\r\n".join(lines).encode()


def _request(head: bytes, body: dict[str, Any]) -> bytes:
    content = orjson.dumps(body)
    return b"%s%d\r\n\r\n%s" % (head, len(content), content)


def _tell(message: dict[str, Any]) -> None:
    try:
        frames.write(sys.stdout.buffer, message)
    except OSError:
        os._exit(1)  # the owner is gone


def main() -> None:
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(Child().run())
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # the interpreter would wait for the thread that holds stdin


if __name__ == "__main__":
    main()
