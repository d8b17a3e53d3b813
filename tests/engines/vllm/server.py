"""A program that speaks vLLM's HTTP and prints vLLM's log lines, but computes nothing: it is installed as `vllm`.

Written into a folder that stands on PYTHONPATH by `tests.engines.vllm.acting`, so that the adapter's own command starts
it. SCRIPTED_VLLM says how it fails, for every arm (`cut`) or by the number of draft tokens (`2=cut 3=memory`); `cut@1`
fails after one good answer. Output tokens are a function of what stands before them, as in a greedy engine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import sys
import time
import zlib
from collections.abc import Iterator
from typing import Any

from aiohttp import web

VERSION = os.environ.get("SCRIPTED_VERSION", "0.32.0")
PER_REQUEST_SINCE = (0, 29)
MEMORY_LOG = """\
(Worker pid=72) ERROR 11-30 01:17:25 [multiproc_executor.py:1080] Traceback (most recent call last):
(Worker pid=72) ERROR 11-30 01:17:25 [multiproc_executor.py:1080]     raise ValueError(
(Worker pid=72) ERROR 11-30 01:17:25 [multiproc_executor.py:1080] ValueError: Available memory on node 0 (14.3/17.21 \
GiB) on kv cache allocation is less than requested memory for kv (400.0 GiB). Decrease --kv-cache-memory-bytes, \
VLLM_CPU_KVCACHE_SPACE, or reduce CPU memory used by other processes.
(EngineCore pid=71) ERROR 11-30 01:17:25 [core.py:1510] RuntimeError: Worker failed with error 'Available memory on \
node 0 (14.3/17.21 GiB)', please check the stack trace above for the root cause
(EngineCore pid=71) ERROR 11-30 01:17:28 [multiproc_executor.py:315] Worker proc VllmWorker-0 died unexpectedly \
(exit code: None), shutting down executor.
    raise self._exception
    raise RuntimeError(
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}
"""


DEATH_LOG = """\
(EngineCore pid=71) ERROR 11-30 01:17:25 [core.py:1510] EngineCore failed to start.
(EngineCore pid=71) ERROR 11-30 01:17:25 [core.py:1510] safetensors_rust.SafetensorError: Error while deserializing \
header: incomplete metadata, file not fully covered
(APIServer pid=70) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""


def parse(arguments: list[str] | None = None, version: str = VERSION) -> argparse.Namespace:
    """The flags of that version which the adapter uses; any other one is refused, as vLLM does."""
    parser = argparse.ArgumentParser("api_server.py", allow_abbrev=False)
    for name in ("model", "served-model-name", "dtype", "generation-config", "host"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("max-model-len", "max-num-seqs", "port"):
        parser.add_argument(f"--{name}", type=int, required=True)
    for name in ("no-enable-prefix-caching", "enable-prompt-tokens-details", "disable-uvicorn-access-log"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--enforce-eager", action="store_true")
    parser.add_argument("--speculative-config", type=json.loads)
    if tuple(map(int, version.split(".")[:2])) >= PER_REQUEST_SINCE:
        parser.add_argument("--per-request-spec-decode-metrics", default="none")
    return parser.parse_args(arguments)


class Fault:
    """What goes wrong with this arm, and after how many good answers."""

    def __init__(self, width: int) -> None:
        script = os.environ.get("SCRIPTED_VLLM", "")
        by_width = dict(item.split("=") for item in script.split()) if "=" in script else {str(width): script}
        self.name, _, after = by_width.get(str(width), "").partition("@")
        self.after = int(after or 0)


class Server:
    """Every step accepts two drafts. Counters are cumulative."""

    def __init__(self, options: argparse.Namespace, fault: Fault) -> None:
        self.options = options
        self.fault = fault
        self.answers = self.tokens = self.drafts = self.accepted = 0
        self.width = _width(options)

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/health", self.health)
        app.router.add_get("/version", lambda _: _json({"version": VERSION}))
        app.router.add_get("/metrics", self.metrics)
        app.router.add_post("/v1/chat/completions", self.chat)
        app.router.add_post("/v1/completions", self.rank)
        if os.environ.get("VLLM_SERVER_DEV_MODE") == "1":
            app.router.add_get("/server_info", self.info)
            app.router.add_post("/reset_prefix_cache", lambda _: _json({}))
        return app

    async def health(self, _: web.Request) -> web.Response:
        return web.Response(status=503 if self.fault.name == "never_ready" else 200)

    async def info(self, request: web.Request) -> web.Response:
        options = self.options
        dtype = "torch.bfloat16" if self.fault.name == "other_dtype" else f"torch.{options.dtype}"
        config = {
            "model_config": {
                "model": options.model,
                "dtype": dtype,
                "max_model_len": options.max_model_len,
                "enforce_eager": options.enforce_eager,
            },
            "cache_config": {"enable_prefix_caching": not options.no_enable_prefix_caching},
            "scheduler_config": {"max_num_seqs": options.max_num_seqs, "async_scheduling": False},
            "device_config": {"device": "cpu"},
            "attention_config": {"backend": None},
            "speculative_config": self.speculative(),
        }
        as_json = request.query.get("config_format") == "json"
        return _respond({"vllm_config": config if as_json else str(config)})

    def speculative(self) -> dict[str, Any] | None:
        """As vLLM fills it in: n-gram drafts have the method for a model."""
        given: dict[str, Any] | None = self.options.speculative_config
        return None if given is None else {"model": "ngram", "rejection_sample_method": "standard"} | given

    async def metrics(self, _: web.Request) -> web.Response:
        labels = 'engine="0",model_name="target"'
        lines = [
            "# TYPE vllm:generation_tokens_total counter",
            f"vllm:generation_tokens_total{{{labels}}} {float(self.tokens)}",
            f"vllm:time_to_first_token_seconds_count{{{labels}}} {float(self.answers)}",
        ]
        if self.width:
            lines += [
                f"vllm:spec_decode_num_drafts_total{{{labels}}} {float(self.drafts)}",
                f"vllm:spec_decode_num_draft_tokens_total{{{labels}}} {float(self.drafts * self.width)}",
                f"vllm:spec_decode_num_accepted_tokens_total{{{labels}}} {float(self.accepted)}",
            ]
            for position in range(self.width):
                count = float(self.drafts if position < 2 else 0)
                name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
                lines.append(f'{name}{{{labels},position="{position}"}} {count}')
        return web.Response(text="\n".join(lines) + "\n")

    async def rank(self, request: web.Request) -> web.Response:
        body = await request.json()
        assert body["return_tokens_as_token_ids"]
        best = next(_tokens(body["prompt"]))
        alternatives = {f"token_id:{best + 1}": -1.5, f"token_id:{best}": -0.25}
        choice = {"index": 0, "text": "", "logprobs": {"top_logprobs": [alternatives]}}
        return _respond({"choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": 1}})

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        prompt = list(body["messages"][-1]["content"].encode())
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            for chunk in self._chunks(prompt, body["max_tokens"]):
                await asyncio.sleep(0.001)
                await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        except ConnectionAbortedError:
            assert request.transport is not None
            request.transport.abort()
            return response
        await response.write(b"data: [DONE]\n\n")
        return response

    def _chunks(self, prompt: list[int], total: int) -> Iterator[dict[str, Any]]:
        tokens, done, steps = _tokens(prompt), 1, 0
        self.answers += 1
        role = {"index": 0, "delta": {"role": "assistant", "content": ""}}
        yield {"choices": [role], "prompt_token_ids": prompt}
        yield _chunk([next(tokens)], None)
        while done < total:
            emitted = min(3 if self.width else 1, total - done)
            done, steps = done + emitted, steps + 1
            yield _chunk([next(tokens) for _ in range(emitted)], "length" if done == total else None)
            yield from self._strike()
        self.tokens += total
        self.drafts += steps if self.width else 0
        self.accepted += 2 * steps if self.width else 0
        usage = {"prompt_tokens": len(prompt), "completion_tokens": total, "total_tokens": len(prompt) + total}
        last: dict[str, Any] = {"choices": [], "usage": usage | {"prompt_tokens_details": {"cached_tokens": 0}}}
        if self.width and vars(self.options).get("per_request_spec_decode_metrics") == "summary":
            histogram = [0, 0, steps] + [0] * (self.width - 2)
            told = {"acceptance_histogram": histogram, "num_spec_steps": steps, "num_accepted_draft_tokens": 2 * steps}
            last["metrics"] = {"speculative_decoding": told | {"num_draft_tokens": steps * self.width}}
        yield {"choices": []} if self._strikes("no_usage") else last

    def _strikes(self, name: str) -> bool:
        return self.fault.name == name and self.answers > self.fault.after

    def _strike(self) -> Iterator[dict[str, Any]]:
        """Fail in the middle of an answer."""
        if self._strikes("dies"):
            sys.stderr.write(
                "(APIServer pid=70) ERROR 11-30 00:00:00 [async_llm.py:741] EngineDeadError: EngineCore died\n"
            )
            os._exit(1)
        if self._strikes("cut"):
            raise ConnectionAbortedError
        if self._strikes("stream_error"):
            yield {"error": {"message": "EngineCore encountered an issue", "code": 500}}


def _width(options: argparse.Namespace) -> int:
    return options.speculative_config["num_speculative_tokens"] if options.speculative_config else 0


def _chunk(token_ids: list[int], reason: str | None) -> dict[str, Any]:
    text = "".join(f" {token_id}" for token_id in token_ids)
    return {"choices": [{"index": 0, "delta": {"content": text}, "token_ids": token_ids, "finish_reason": reason}]}


def _tokens(prompt: list[int]) -> Iterator[int]:
    state = zlib.crc32(bytes(token % 256 for token in prompt))
    while True:
        yield state % 1000
        state = zlib.crc32(state.to_bytes(4, "little"))


async def _json(body: dict[str, Any]) -> web.Response:
    return _respond(body)


def _respond(body: dict[str, Any]) -> web.Response:
    return web.json_response(body)


def main() -> None:
    options = parse()
    fault = Fault(_width(options))
    if fault.name == "flag":
        parse(["--flag-of-yesterday"])
    with socket.socket() as listener, socket.socket() as other:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((options.host, options.port))
        if fault.name == "port":
            other.bind((options.host, options.port))
        if fault.name in ("memory", "dies_loading"):
            sys.stderr.write(MEMORY_LOG if fault.name == "memory" else DEATH_LOG)
            raise SystemExit(1)
        sys.stderr.write(f"(APIServer pid=70) INFO scripted, not vLLM: {time.time()}\n")
        web.run_app(Server(options, fault).app(), sock=listener, print=None, shutdown_timeout=1.0)


if __name__ == "__main__":
    main()
