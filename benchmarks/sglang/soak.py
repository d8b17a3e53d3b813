"""Mixed lengths, aborts, no leak: a server under a load that changes its mind.

Requests of many lengths at concurrency 32 for a stated time, one in eight of them cut by the client. Afterwards the
server must hold no KV slot, by its own account have leaked none, and answer the first prompts as it did before; once
more so after it flushed its cache, which gives back all memory that is free, and then prefilled 32 prompts at once.
"""

from __future__ import annotations

import json
import random
import socket
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.sglang.servers import Server

_IDLE_S = 35
"""SGLang writes its idle gauges at most every 30 s."""


def soak(server: Server, prompts: list[list[int]], seconds: float) -> dict[str, Any]:
    first = [server.generate(prompt, 64)["output_ids"] for prompt in prompts[:4]]
    until = time.monotonic() + seconds
    with ThreadPoolExecutor(32) as pool:
        done = list(pool.map(lambda seed: _worker(server, prompts, until, seed), range(32)))
    last = [server.generate(prompt, 64)["output_ids"] for prompt in prompts[:4]]
    held = _held(server)
    server.post("/flush_cache?timeout=10", {}, reads=False)
    server.generate_all(prompts[:64], 64, 32)
    flushed = [server.generate(prompt, 64)["output_ids"] for prompt in prompts[:4]]
    return {
        "seconds": seconds,
        "answered": sum(one["answered"] for one in done),
        "aborted": sum(one["aborted"] for one in done),
        "wrong": sum(one["wrong"] for one in done),
        "tokens": sum(one["tokens"] for one in done),
        "same_text_after": first == last,
        "same_text_after_a_flush": first == flushed,
        "kv_tokens_held_after": held,
        "leaks_reported": server.text.count("memory leak detected"),
        "log_probabilities_refused": _log_probabilities(server, prompts[0]),
    }


def _log_probabilities(server: Server, prompt: list[int]) -> str:
    """How a request for them ends, which the server must turn down; it goes on serving."""
    try:
        answer = server.post("/generate", {"input_ids": prompt, "return_logprob": True})
        ended = json.dumps(answer["meta_info"]["finish_reason"])
    except urllib.error.HTTPError as error:
        ended = f"{error.code} {error.read().decode(errors='replace')}"
    server.generate(prompt, 4)
    return ended[:300]


def _worker(server: Server, prompts: list[list[int]], until: float, seed: int) -> dict[str, int]:
    """A request must give as many tokens as it asked for, or end by the model's own stop token."""
    source = random.Random(seed)
    count = {"answered": 0, "aborted": 0, "wrong": 0, "tokens": 0}
    while time.monotonic() < until:
        prompt, tokens = source.choice(prompts), source.choice([1, 2, 7, 33, 150, 300])
        if source.random() < 1 / 8:
            _abort(server, prompt, 300, source.uniform(0.01, 0.3))
            count["aborted"] += 1
            continue
        sampling = source.choice([{}, {"temperature": 0.8, "top_p": 0.9}])
        told = server.generate(prompt, tokens, **sampling)["meta_info"]
        count["answered"] += 1
        count["tokens"] += told["completion_tokens"]
        count["wrong"] += not (told["completion_tokens"] == tokens or told["finish_reason"]["type"] == "stop")
    return count


def _abort(server: Server, prompt: list[int], tokens: int, after_s: float) -> None:
    """Start a stream and hang up."""
    body = json.dumps({"input_ids": prompt, "sampling_params": {"max_new_tokens": tokens}, "stream": True}).encode()
    head = (
        f"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port)) as wire:
        wire.sendall(head.encode() + body)
        time.sleep(after_s)


def _held(server: Server) -> float:
    """KV tokens in use, of the server's own metric, which says so some time after the last request."""
    until = time.monotonic() + _IDLE_S
    while True:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        held = sum(float(line.split()[-1]) for line in lines if line.startswith("sglang:num_used_tokens"))
        if not held or time.monotonic() > until:
            return held
        time.sleep(0.5)
