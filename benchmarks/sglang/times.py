"""What clients see of servers side by side: milliseconds to the first token, and of a step.

All prompts are random tokens, and answers go on to their full length.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.sglang.servers import Server

TOKENS = 96
"""Of an answer."""
HEAVY = 70_000
"""Prompt tokens of a point above which prefill takes so much longer than the steps that no two prefills are alike to
within a step, nor is there time for several.
"""


class CrowdedError(RuntimeError):
    """The server ran fewer requests at once than it was given."""


def first_tokens(servers: Mapping[str, Server], context: int, rounds: int) -> dict[str, Any]:
    """Of one prompt of `context` tokens: the median of each server and all of its rounds."""
    return _in_turn(servers, rounds, context, lambda server, source: _first_token_ms(server, context, source))


def steps(servers: Mapping[str, Server], batch: int, context: int, rounds: int) -> dict[str, Any]:
    """The same of a step of `batch` requests. A heavy point is timed once, and a server that does not run all of its
    requests at once tells that and no time.
    """
    if batch * context > HEAVY:
        source = random.Random(batch * context)
        return {name: _heavy(server, batch, context, source) for name, server in servers.items()}
    return _in_turn(servers, rounds, batch * context, lambda server, source: _step_ms(server, batch, context, source))


def prompts(source: random.Random, count: int, length: int) -> list[list[int]]:
    return [[source.randrange(1000, 30_000) for _ in range(length)] for _ in range(count)]


def _in_turn(
    servers: Mapping[str, Server], rounds: int, seed: int, measure: Callable[[Server, random.Random], float]
) -> dict[str, Any]:
    """The servers in a new order each round."""
    source = random.Random(seed)
    times: dict[str, list[float]] = {name: [] for name in servers}
    for number in range(rounds + 1):
        for name in source.sample(list(servers), len(servers)):
            found = measure(servers[name], source)
            if number:  # the first round warms up
                times[name].append(found)
    return {name: {"median": statistics.median(some), "all": some} for name, some in times.items()}


def _first_token_ms(server: Server, context: int, source: random.Random) -> float:
    """From asking for one token to having it."""
    (prompt,) = prompts(source, 1, context)
    began = time.perf_counter()
    server.generate(prompt, 1, ignore_eos=True)
    return 1000 * (time.perf_counter() - began)


def _step_ms(server: Server, batch: int, context: int, source: random.Random) -> float:
    """Two batches that differ in length alone: the difference of their times over that of their steps is without
    prefill and without the request's own overhead.
    """
    asked = prompts(source, batch, context)
    spans = []
    for tokens in (TOKENS // 3, TOKENS):
        began = time.perf_counter()
        answers = server.generate_all(asked, tokens, batch, ignore_eos=True)
        spans.append((time.perf_counter() - began, max(_steps(answer["meta_info"]) for answer in answers)))
    (short, few), (long, many) = spans
    return 1000 * (long - short) / (many - few)


def _steps(told: Mapping[str, Any]) -> int:
    return int(told.get("spec_verify_ct") or told["completion_tokens"] - 1)


def _heavy(server: Server, batch: int, context: int, source: random.Random) -> dict[str, Any]:
    try:
        ms = _streamed_step_ms(server, batch, context, source)
    except CrowdedError as error:
        return {"failed": str(error)}
    return {"median": ms, "all": [ms], "by": "streams"}


def _streamed_step_ms(server: Server, batch: int, context: int, source: random.Random) -> float:
    """By the pieces that come from when the last request has begun to when the first one ends: all are running.
    CrowdedError where they never do, or for less than two steps.
    """
    with ThreadPoolExecutor(batch) as pool:
        asked = [
            pool.submit(server.arrivals, prompt, TOKENS, ignore_eos=True) for prompt in prompts(source, batch, context)
        ]
        came = [answer.result() for answer in asked]
    begin, end = max(times[0] for times in came), min(times[-1] for times in came)
    if begin >= end:
        running = sum(times[0] < end for times in came)
        raise CrowdedError(f"{running} of {batch} requests ran at once")
    within = [[time for time in times if begin <= time <= end] for times in came]
    if min(map(len, within)) < 2:
        raise CrowdedError("the requests ran at once for less than two steps of each")
    return 1000 * statistics.median((times[-1] - times[0]) / (len(times) - 1) for times in within)
