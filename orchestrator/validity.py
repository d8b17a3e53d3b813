"""Whether a trial counts: each check looks at what was measured and gives one line, or nothing.

What its answers say is the engine's fault; what the machine did meanwhile is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import zip_longest

import numpy as np

from engines.base import SpecCounters
from orchestrator.answer import Answer

LEAST_LAG_S = 0.001
"""A process that has to share a CPU is not woken more punctually."""


@dataclass(frozen=True)
class Limits:
    """How much disturbance a trial bears.

    `other_cpu`: cores that other processes used on average while less than `idle_cpu` cores had nothing to do, so that
    they took them from the engine. `client_lag_s`: 99th percentile of the time from a request's schedule to its
    bytes on the wire; `client_lag_share`: of it in the median answer's time, but no lag below LEAST_LAG_S counts as
    late. `clock_spread`: of the GPU's SM clock, relative. `identity_error`: of the answers' time against the
    stages', relative.
    """

    other_cpu: float = 0.5
    idle_cpu: float = 1.0
    client_lag_s: float = 0.005
    client_lag_share: float = 0.01
    clock_spread: float = 0.1
    identity_error: float = 0.05


@dataclass(frozen=True)
class MachineLoad:
    """Averages over a trial, in cores. `other` is what neither the engine nor the load client used, steal included."""

    other: float
    idle: float


def check(answers: Sequence[Answer], concurrency: int, counters: SpecCounters) -> str:
    """Why these answers make no valid trial, in one line; empty where they do. All are complete ones."""
    return (
        _enough_prompts(len(answers), concurrency)
        or _prompts_once(answers)
        or _nothing_cached(answers)
        or _counters_agree(answers, counters)
        or _tokens_accounted(answers, counters)
    )


def disturbance(answers: Sequence[Answer], load: MachineLoad | None, limits: Limits) -> str:
    """Why the client or its machine spoiled the trial, in one line; empty where they did not."""
    return _client_in_time(answers, limits) or _machine_quiet(load, limits)


def _enough_prompts(prompts: int, concurrency: int) -> str:
    if prompts >= concurrency:
        return ""
    return f"{prompts} prompts a block cannot keep {concurrency} requests in flight; use fewer blocks or more prompts"


def _prompts_once(answers: Sequence[Answer]) -> str:
    """A prompt asked twice is answered from a cache, or counted twice."""
    asked = Counter(answer.prompt.messages for answer in answers)
    names = [answer.prompt.prompt_id for answer in answers if asked[answer.prompt.messages] > 1]
    return f"the prompt {names[0]} was sent {len(names)} times" if names else ""


def _nothing_cached(answers: Sequence[Answer]) -> str:
    """A prefix that was not computed makes TTFT, and what shares the engine with a prefill, another measurement's."""
    hits = [answer.cached_tokens for answer in answers if answer.cached_tokens]
    if not hits:
        return ""
    share = f"{sum(hits)} prompt tokens of {len(hits)} in {len(answers)} requests"
    return f"{share} came from the prefix cache; switch it off in the profile's arguments"


def _counters_agree(answers: Sequence[Answer], counters: SpecCounters) -> str:
    """The server's own difference over the trial against the sum of what its requests reported, where both exist."""
    told = [answer.counters for answer in answers if answer.counters is not None]
    if len(told) < len(answers):
        return ""
    requests = total(told)
    for field in fields(SpecCounters):
        server, summed = getattr(counters, field.name), getattr(requests, field.name)
        if field.name == "accepted_by_depth":
            server, summed = _trimmed(server), _trimmed(summed)
        if server != summed:
            return f"counters disagree: the server says {field.name} = {server}, its requests sum to {summed}"
    return ""


def completed(server: SpecCounters, told: frozenset[str], answers: Sequence[Answer]) -> SpecCounters:
    """The server's counters where it tells them (`Engine.server_counts`), else the sum of its requests'."""
    requests = total(answer.counters for answer in answers if answer.counters is not None)
    return replace(requests, **{name: getattr(server, name) for name in told})


def total(counters: Iterable[SpecCounters]) -> SpecCounters:
    """The sum of several requests' counters."""
    items = list(counters)
    depths = [sum(column) for column in zip_longest(*(item.accepted_by_depth for item in items), fillvalue=0)]
    return SpecCounters(
        verify_steps=sum(item.verify_steps for item in items),
        drafted=sum(item.drafted for item in items),
        accepted=sum(item.accepted for item in items),
        emitted=sum(item.emitted for item in items),
        accepted_by_depth=tuple(depths),
    )


def _trimmed(depths: tuple[int, ...]) -> tuple[int, ...]:
    """Without the zeros at the end: a server may report more depths than any request reached."""
    used = max((depth + 1 for depth, count in enumerate(depths) if count), default=0)
    return depths[:used]


def _tokens_accounted(answers: Sequence[Answer], counters: SpecCounters) -> str:
    """Every token is either a prefill's or a verify step's."""
    for answer in answers:
        if answer.counters and answer.counters.emitted + 1 != answer.output_tokens:
            return (
                f"request {answer.prompt.prompt_id}: {answer.output_tokens} output tokens, but its verify steps "
                f"emitted {answer.counters.emitted} and the prefill 1"
            )
    tokens = sum(answer.output_tokens for answer in answers)
    if counters.emitted + len(answers) != tokens:
        return f"{tokens} output tokens, but verify steps emitted {counters.emitted} and the prefills {len(answers)}"
    return ""


def _client_in_time(answers: Sequence[Answer], limits: Limits) -> str:
    lag = float(np.percentile([answer.sent - answer.scheduled for answer in answers], 99))
    median = float(np.median([answer.last - answer.scheduled for answer in answers]))
    allowed = min(limits.client_lag_s, max(LEAST_LAG_S, limits.client_lag_share * median))
    if lag <= allowed:
        return ""
    return f"the load client sent late: 99th percentile {lag * 1e3:.2f} ms, allowed {allowed * 1e3:.2f} ms"


def _machine_quiet(load: MachineLoad | None, limits: Limits) -> str:
    if load is None or load.other <= limits.other_cpu or load.idle >= limits.idle_cpu:
        return ""
    return f"other processes used {load.other:.2f} cores on average, allowed {limits.other_cpu:g}"
