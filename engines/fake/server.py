"""The fake engine's server: `python -m engines.fake.server --port P`. Speaks the reference server's HTTP contract.

It follows a Script, which arms send to /configure. Text is made of the token ids; every body says `simulated`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any, NoReturn

from aiohttp import web

from engines.base import Method, SpecCounters, StageTimes
from engines.fake.script import BLOCK_SIZE, DEFECTS, SLOWED, Script, candidates, prefix_state

_MARK = {"model": "fake", "simulated": True}


@dataclass(frozen=True)
class _Asked:
    """The part of a request body that the script heeds."""

    prompt: list[int]
    max_tokens: int
    stream: bool
    chat: bool

    @classmethod
    def read(cls, body: dict[str, Any], chat: bool) -> _Asked:
        prompt = "\n".join(message["content"] for message in body["messages"]) if chat else body["prompt"]
        ids = list(prompt.encode()) if isinstance(prompt, str) else list(prompt)
        return cls(ids, int(body.get("max_tokens") or 16), bool(body.get("stream")), chat)


class FakeServer:
    """Counters are cumulative over all arms that this process was configured for."""

    def __init__(self, script: Script, digests: dict[str, Any]) -> None:
        self._script = script
        self._digests = digests
        self._begun = time.monotonic()
        self._served = 0
        self._running = 0
        self._counters = SpecCounters()
        self._stages = StageTimes()

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/health", self.health)
        app.router.add_get("/server_info", self.info)
        app.router.add_post("/configure", self.configure)
        app.router.add_post("/ranking", self.ranking)
        app.router.add_post("/v1/completions", self.answer)
        app.router.add_post("/v1/chat/completions", self.answer)
        return app

    async def health(self, _: web.Request) -> web.Response:
        waited = time.monotonic() - self._begun >= self._script.ready_after_s
        ready = waited and self._script.fail != "never_ready"
        return web.json_response(_MARK | {"status": "ready" if ready else "loading"}, status=200 if ready else 503)

    async def info(self, _: web.Request) -> web.Response:
        script = self._script
        wrong = script.fail == "identity"
        method = Method.NGRAM if wrong else script.method
        identity = {"engine": "fake", "version": "fake 1", "method": method, "budget": 999 if wrong else script.budget}
        block = None if script.method is Method.AUTOREGRESSIVE else BLOCK_SIZE
        identity |= {"chain": script.chain, "block_size": block, "attention_backend": "fake", **self._digests}
        state = {"counters": asdict(self._counters), "stages": asdict(self._stages), "running": self._running}
        return web.json_response(_MARK | identity | state | {"waiting": 0, "settings": {"simulated": True}})

    async def configure(self, request: web.Request) -> web.Response:
        if self._running:
            return _error(409, f"{self._running} requests are running")
        try:
            self._script = Script.parse(await request.json())
        except (TypeError, ValueError) as error:
            return _error(400, str(error))
        self._served = 0
        return web.json_response(_MARK)

    async def ranking(self, request: web.Request) -> web.Response:
        best = candidates(prefix_state((await request.json())["token_ids"]))
        return web.json_response(_MARK | {"token_ids": best, "log_probs": [-0.5, -0.5 - self._script.gap]})

    async def answer(self, request: web.Request) -> web.StreamResponse:
        try:
            asked = _Asked.read(await request.json(), request.path.endswith("/chat/completions"))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            return _error(400, f"the body cannot be read: {error!r}")
        self._running += 1
        try:
            events = self._events(asked)
            return await _send(request, events) if asked.stream else await self._whole(asked, events)
        finally:
            self._running -= 1

    async def _events(self, asked: _Asked) -> AsyncIterator[dict[str, Any]]:
        """Chunks of a stream, the one with the usage last."""
        script, counters = self._script, SpecCounters()
        failure = script.fail if self._served >= script.fail_after else ""
        total = min(asked.max_tokens, script.stop_after or asked.max_tokens)
        tokens = script.tokens(asked.prompt)
        await asyncio.sleep(script.ttft_ms / 1e3)
        self._stages = replace(self._stages, prefill=self._stages.prefill + script.ttft_ms / 1e3)
        reason = "stop" if script.stop_after == total else "length"
        done = 1
        yield _chunk(asked, list(islice(tokens, 1)), None if done < total else reason) | {
            "prompt_token_ids": asked.prompt
        }
        await _strike(failure)
        for emitted, accepted in script.steps(total - 1):
            await asyncio.sleep(script.step_ms / 1e3 * (SLOWED if failure == "slow" else 1.0))
            self._stages = _after_step(self._stages, script)
            self._counters = script.count(self._counters, emitted, accepted)
            counters = script.count(counters, emitted, accepted)
            done += emitted
            yield _chunk(asked, list(islice(tokens, emitted)), None if done < total else reason)
        self._served += 1
        usage = _usage(asked, total, script, counters)
        yield _MARK | {"choices": []} | ({} if failure == "no_usage" else {"usage": usage})

    async def _whole(self, asked: _Asked, events: AsyncIterator[dict[str, Any]]) -> web.Response:
        chunks = [event async for event in events]
        choices = [chunk["choices"][0] for chunk in chunks[:-1]]
        text = "".join(choice["delta"]["content"] if asked.chat else choice["text"] for choice in choices)
        whole = {"message": {"role": "assistant", "content": text}} if asked.chat else {"text": text}
        ids = [token_id for choice in choices for token_id in choice["token_ids"]]
        whole |= {"index": 0, "token_ids": ids, "finish_reason": choices[-1]["finish_reason"]}
        return web.json_response(chunks[0] | chunks[-1] | {"choices": [whole]})


class _Cut(Exception):  # noqa: N818 (a scripted outcome)
    """The connection is to be closed."""


async def _strike(failure: str) -> None:
    """Fail in the middle of an answer."""
    if failure == "exit":
        os._exit(1)
    if failure == "hang":
        await asyncio.Event().wait()
    if failure in ("cut", "garbage", "error"):
        raise _Cut(failure)


async def _send(request: web.Request, events: AsyncIterator[dict[str, Any]]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    try:
        async for event in events:
            await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")
    except _Cut as cut:
        broken = {"garbage": b"data: {fake garbage\n\n", "error": b'data: {"error": {"message": "fake error"}}\n\n'}
        await response.write(broken.get(str(cut), b""))
        if str(cut) == "cut":
            assert request.transport is not None
            request.transport.abort()
            return response
    await response.write(b"data: [DONE]\n\n")
    return response


def _chunk(asked: _Asked, token_ids: Sequence[int], reason: str | None) -> dict[str, Any]:
    text = "".join(f" {token_id}" for token_id in token_ids)
    piece = {"delta": {"content": text}} if asked.chat else {"text": text}
    choice = {"index": 0, **piece, "token_ids": list(token_ids), "finish_reason": reason}
    return _MARK | {"object": "chat.completion.chunk" if asked.chat else "text_completion", "choices": [choice]}


def _usage(asked: _Asked, tokens: int, script: Script, counters: SpecCounters) -> dict[str, Any]:
    return {
        "prompt_tokens": len(asked.prompt),
        "completion_tokens": tokens,
        "total_tokens": len(asked.prompt) + tokens,
        "prompt_tokens_details": {"cached_tokens": script.cached_tokens},
        "speculative": asdict(counters),
    }


def _after_step(stages: StageTimes, script: Script) -> StageTimes:
    """One more step, its time divided by a fixed rule; plain decoding only verifies."""
    seconds = script.step_ms / 1e3
    draft = 0.25 * seconds if script.drafted else 0.0
    return replace(stages, steps=stages.steps + 1, draft=stages.draft + draft, verify=stages.verify + seconds - draft)


def _error(status: int, message: str) -> web.Response:
    return web.json_response(_MARK | {"error": {"message": f"fake: {message}"}}, status=status)


def _end(message: str, code: int) -> NoReturn:
    sys.stderr.write(f"engines.fake.server (simulated): error: {message}\n")
    raise SystemExit(code)


def main() -> None:
    parser = argparse.ArgumentParser("engines.fake.server", description="A scripted engine; it computes nothing.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--script", type=json.loads, default={}, help="options as JSON")
    for name in ("dtype", "device", "target-digest", "drafter-digest"):
        parser.add_argument(f"--{name}", default=None if name == "drafter-digest" else "")
    arguments = vars(parser.parse_args())
    host, port, options = arguments.pop("host"), arguments.pop("port"), arguments.pop("script")
    try:
        script = Script.parse(options | json.loads(os.environ.get(DEFECTS, "{}")))
    except ValueError as error:
        _end(str(error), 2)
    if script.fail == "start":
        _end("scripted failure at start", 1)
    sys.stderr.write(f"engines.fake.server (simulated): on http://{host}:{port}\n")
    web.run_app(
        FakeServer(script, arguments).app(),
        host=host,
        port=port,
        print=None,
        shutdown_timeout=1.0,
        handler_cancellation=True,
    )


if __name__ == "__main__":
    main()
