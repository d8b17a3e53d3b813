"""A program that speaks SGLang's HTTP and prints SGLang's log lines, but computes nothing: it is installed as `sglang`.

Written into a folder that stands on PYTHONPATH by `tests.engines.sglang.acting`, so that the adapter's own command
starts it. SCRIPTED_SGLANG says how it fails. Output tokens are a function of what stands before them, as in a greedy
engine. Field and counter names are those of 0.5.17.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aiohttp import web

VERSION = "0.5.17"
SCRIPT = os.environ.get("SCRIPTED_SGLANG", "")
ACCEPTED = 2
"""Draft tokens that every step accepts."""
LABELS = 'engine_type="unified",model_name="target"'
MEMORY_LOG = """\
[2026-11-30 01:17:25] Load weight begin. avail mem=139.20 GB
[2026-11-30 01:17:26] Scheduler hit an exception: Traceback (most recent call last):
  File "/site/sglang/srt/managers/scheduler.py", line 4935, in run_scheduler_process
    scheduler = Scheduler(
  File "/site/sglang/srt/model_executor/pool_configurator.py", line 67, in __post_init__
    raise RuntimeError(msg)
RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: mem_fraction_static=0.1

[2026-11-30 01:17:26] Received sigquit from a child process. It usually means the child failed.
RuntimeError: Rank 0 scheduler died during initialization (exit code: -3). If exit code is -9 (SIGKILL), a common \
cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check.
"""
PLUGIN_LOG = """\
[2026-11-30 01:17:20] Failed to execute general plugin: ddtree
Traceback (most recent call last):
  File "/site/sglang/srt/plugins/__init__.py", line 138, in load_plugins
    func()
  File "/site/ddtree/sglang/plugin.py", line 20, in activate
    raise IncompatibleError("SGLang 0.5.17 has no FutureMap.stash")
ddtree.sglang.symbols.IncompatibleError: SGLang 0.5.17 has no FutureMap.stash
usage: launch_server.py [-h] --model-path MODEL_PATH
launch_server.py: error: argument --attention-backend: invalid choice: 'ddtree' (choose from triton, flashinfer)
"""


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The flags of 0.5.17 that the adapter uses; any other one is refused, as SGLang does."""
    parser = argparse.ArgumentParser("launch_server.py")
    for name in ("model-path", "served-model-name", "dtype", "host", "sampling-backend", "grammar-backend"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("context-length", "max-running-requests", "cuda-graph-max-bs-decode", "random-seed", "port"):
        parser.add_argument(f"--{name}", type=int, required=True)
    for name in ("disable-radix-cache", "enable-metrics", "incremental-streaming-output", "sleep-on-idle"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--disable-overlap-schedule", action="store_true")
    backends = ["triton", "flashinfer", "fa3"] + (["ddtree"] if _plugin() else [])
    parser.add_argument("--attention-backend", choices=backends)
    parser.add_argument("--prefill-attention-backend", choices=backends)
    parser.add_argument("--log-level-http")
    parser.add_argument("--nccl-port", type=int)
    parser.add_argument("--mem-fraction-static", type=float, default=0.8)
    parser.add_argument("--max-total-tokens", type=int)
    parser.add_argument("--min-free-slots-delay", type=int)
    parser.add_argument("--load-format", default="auto")
    parser.add_argument("--speculative-algorithm")
    parser.add_argument("--speculative-draft-model-path")
    parser.add_argument("--speculative-draft-attention-backend")
    parser.add_argument("--speculative-dflash-block-size", type=int)
    return parser.parse_args(arguments)


def _plugin() -> bool:
    return os.environ.get("SGLANG_PLUGINS") == "ddtree" and SCRIPT != "no_plugin"


class Server:
    """Every step accepts ACCEPTED drafts. Counters are cumulative."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.answers = self.tokens = self.steps = 0
        self.budget = int(os.environ.get("DDTREE_MAX_BUDGET") or os.environ.get("DDTREE_BUDGET") or 0)
        self.block = options.speculative_dflash_block_size or _block_size(options.speculative_draft_model_path)
        tree = options.speculative_algorithm == "DDTREE"
        self.width = max(self.budget + 1, self.block) if tree else self.block

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/health", self.health)
        app.router.add_get("/server_info", self.info)
        app.router.add_get("/metrics", self.metrics)
        app.router.add_post("/flush_cache", self.flush)
        app.router.add_post("/freeze_gc", self.freeze)
        app.router.add_post("/v1/tokenize", self.tokenize)
        app.router.add_post("/generate", self.generate)
        return app

    async def health(self, _: web.Request) -> web.Response:
        return web.Response(status=503 if SCRIPT == "never_ready" else 200)

    async def info(self, _: web.Request) -> web.Response:
        options = self.options
        told = {name: value for name, value in vars(options).items() if name not in ("host", "port")}
        told["attention_backend"] = options.attention_backend or "fa3"  # as on Hopper
        if options.speculative_algorithm == "DDTREE":
            usual = "flashinfer" if SCRIPT == "other_prefill" else "fa3"
            told["prefill_attention_backend"] = options.prefill_attention_backend or usual
        if options.speculative_algorithm:
            told["speculative_draft_attention_backend"] = (
                options.speculative_draft_attention_backend or told["attention_backend"]
            )
        return web.json_response(
            told
            | {
                "version": VERSION,
                "context_length": options.context_length + (self.width if self.budget else 0),
                "dtype": "float16" if SCRIPT == "other_dtype" else options.dtype,
                "device": "cuda",
                "speculative_num_draft_tokens": self.width or None,
                "speculative_draft_load_format": None,
                "cuda_graph_config": {"decode": {"backend": "full", "max_bs": options.cuda_graph_max_bs_decode}},
                "page_size": 1,
                "max_total_num_tokens": 4096,
                "kv_cache_dtype": "auto",
                "quantization": None,
                "tp_size": 1,
                "internal_states": [{}],
            }
        )

    async def freeze(self, _: web.Request) -> web.Response:
        return web.Response(text="Garbage collection frozen.\n", status=500 if SCRIPT == "never_frozen" else 200)

    async def metrics(self, _: web.Request) -> web.Response:
        lines = [
            f'sglang:generation_tokens_total{{is_streaming="true",{LABELS}}} {float(self.tokens)}',
            f'sglang:num_requests_total{{is_streaming="true",{LABELS}}} {float(self.answers)}',
        ]
        if self.width and self.steps:
            lines.append(f"sglang:spec_verify_calls_total{{{LABELS}}} {float(self.steps)}")
        return web.Response(text="\n".join(lines) + "\n")

    async def flush(self, request: web.Request) -> web.Response:
        assert float(request.query["timeout"]) > 0
        return web.Response(text="Cache flushed.\n", status=400 if SCRIPT == "never_idle" else 200)

    async def tokenize(self, request: web.Request) -> web.Response:
        messages = (await request.json())["messages"]
        tokens = list(messages[-1]["content"].encode())
        return web.json_response({"tokens": tokens, "count": len(tokens), "max_model_len": 512})

    async def generate(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if body.get("return_logprob"):
            return self._ranked(body)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            for event in self._events(body["input_ids"], body["sampling_params"]["max_new_tokens"]):
                await asyncio.sleep(0.001)
                await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        except ConnectionAbortedError:
            assert request.transport is not None
            request.transport.abort()
            return response
        await response.write(b"data: [DONE]\n\n")
        return response

    def _ranked(self, body: dict[str, Any]) -> web.Response:
        if self.width:
            message = "DFLASH speculative decoding does not support return_logprob yet."
            return web.json_response({"error": {"message": message}}, status=400)
        best = next(_tokens(body["input_ids"]))
        alternatives = [[-1.5, best + 1, None], [-0.25, best, None]]
        return web.json_response({"text": "", "meta_info": {"output_top_logprobs": [alternatives]}})

    def _events(self, prompt: list[int], total: int) -> Iterator[dict[str, Any]]:
        tokens, done, steps = _tokens(prompt), 1, 0
        told = {"id": "r", "finish_reason": None, "prompt_tokens": len(prompt), "cached_tokens": 0}
        first = [next(tokens)]
        yield {"text": "", "output_ids": first, "meta_info": told | {"completion_tokens": 1}}
        while done < total:
            emitted = min(ACCEPTED + 1 if self.width else 1, total - done)
            done, steps = done + emitted, steps + 1
            last = done == total
            ids = [next(tokens) for _ in range(emitted)]
            meta = told | {"completion_tokens": done}
            if last:
                meta |= {"finish_reason": {"type": "length", "length": total}} | self._figures(steps)
                self.answers, self.tokens, self.steps = self.answers + 1, self.tokens + total, self.steps + steps
            yield {"text": "".join(f" {token}" for token in ids), "output_ids": ids, "meta_info": meta}
            yield from _strike()

    def _figures(self, steps: int) -> dict[str, Any]:
        if not self.width:
            return {}
        told: dict[str, Any] = {
            "spec_verify_ct": steps,
            "spec_num_correct_drafts": ACCEPTED * steps,
            "spec_num_proposed_drafts": steps * (self.width - 1),
            "spec_correct_drafts_histogram": [0] * ACCEPTED + [steps],
            "spec_accept_rate": 0.5,
        }
        if self.budget:
            told["spec_cap_lens_histogram"] = [0] * (self.budget + 1) + [steps]
        if SCRIPT == "miscounts":
            told["spec_verify_ct"] += 1
        return told


def _strike() -> Iterator[dict[str, Any]]:
    """Fail in the middle of an answer."""
    if SCRIPT == "dies":
        sys.stderr.write(
            "[2026-11-30 00:00:00] Scheduler hit an exception: Traceback (most recent call last):\n"
            "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"
            "[2026-11-30 00:00:00] SIGQUIT received. signum=None, frame=None. It usually means one child failed.\n"
        )
        os._exit(131)
    if SCRIPT == "cut":
        raise ConnectionAbortedError
    if SCRIPT == "stream_error":
        yield {"error": {"message": "the scheduler is gone", "code": 500}}
    if SCRIPT == "aborts":
        finish = {"type": "abort", "message": "Out of KV slots", "status_code": 500}
        yield {"text": "", "output_ids": [], "meta_info": {"finish_reason": finish}}
    if SCRIPT == "garbage":
        yield {"text": "no meta_info"}


def _tokens(prompt: list[int]) -> Iterator[int]:
    state = zlib.crc32(bytes(token % 256 for token in prompt))
    while True:
        yield state % 1000
        state = zlib.crc32(state.to_bytes(4, "little"))


def _block_size(drafter: str | None) -> int:
    if drafter is None:
        return 0
    return int(json.loads((Path(drafter) / "config.json").read_text())["block_size"])


def report(options: argparse.Namespace) -> None:
    """What the plugin would write."""
    if options.speculative_algorithm != "DDTREE" or SCRIPT == "no_report":
        return
    automatic = os.environ["DDTREE_BUDGET"] == "auto"
    budget = int(os.environ["DDTREE_MAX_BUDGET" if automatic else "DDTREE_BUDGET"])
    told = {
        "version": "0.1.0",
        "budget": budget - (SCRIPT == "other_budget"),
        "block_size": _block_size(options.speculative_draft_model_path),
        "topk": int(os.environ["DDTREE_TOPK"] or 8),
        "chain": os.environ["DDTREE_CHAIN"] == "1",
        "attention": "stock" if SCRIPT == "other_attention" else os.environ["DDTREE_ATTENTION"],
        "policy": "auto" if automatic else "fixed",
        "widths": [7, budget] if automatic else [budget],
        "context": options.context_length - 40 * (SCRIPT == "short_context"),
        "cost_model": None,
        "self_check": "token 3 of prompt 1 differs" if SCRIPT == "self_check" else "passed",
    }
    Path(os.environ["DDTREE_REPORT"]).write_text(json.dumps(told))


def main() -> None:
    if SCRIPT == "plugin_fails":
        sys.stderr.write(PLUGIN_LOG)
        raise SystemExit(2)
    options = parse()
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((options.host, options.port))
        if SCRIPT == "memory":
            sys.stderr.write(MEMORY_LOG)
            raise SystemExit(1)
        sys.stderr.write("[2026-11-30 00:00:00] scripted, not SGLang\n")
        report(options)
        web.run_app(Server(options).app(), sock=listener, print=None, shutdown_timeout=1.0)


if __name__ == "__main__":
    main()
