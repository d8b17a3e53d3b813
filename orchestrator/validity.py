"""Whether a trial counts: each check looks at what was measured and gives one line, or nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import zip_longest

import numpy as np

from engines.base import SpecCounters
from orchestrator.answer import Answer


@dataclass(frozen=True)
class Limits:
    """How much disturbance a trial bears.

    `other_cpu`: cores that other processes used on average while less than `idle_cpu` cores had nothing to do, so that
    they took them from the engine. `client_lag_s`: 99th percentile of the time from a request's schedule to its
    headers on the wire.
    """

    other_cpu: float = 0.5
    idle_cpu: float = 1.0
    client_lag_s: float = 0.005


@dataclass(frozen=True)
class MachineLoad:
    """Averages over a trial, in cores. `other` is what neither the engine nor the load client used, steal included."""

    other: float
    idle: float


def check(
    answers: Sequence[Answer], concurrency: int, counters: SpecCounters, load: MachineLoad | None, limits: Limits
) -> str:
    """Why the trial is invalid, in one line; empty when it is valid. All answers are complete ones."""
    return (
        _enough_prompts(len(answers), concurrency)
        or _counters_agree(answers, counters)
        or _tokens_accounted(answers, counters)
        or _client_in_time(answers, limits)
        or _machine_quiet(load, limits)
    )


def _enough_prompts(prompts: int, concurrency: int) -> str:
    if prompts >= concurrency:
        return ""
    return f"{prompts} prompts a block cannot keep {concurrency} requests in flight; use fewer blocks or more prompts"


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
    if lag <= limits.client_lag_s:
        return ""
    return f"the load client sent late: 99th percentile {lag * 1000:.1f} ms, allowed {limits.client_lag_s * 1000:g} ms"


def _machine_quiet(load: MachineLoad | None, limits: Limits) -> str:
    if load is None or load.other <= limits.other_cpu or load.idle >= limits.idle_cpu:
        return ""
    return f"other processes used {load.other:.2f} cores on average, allowed {limits.other_cpu:g}"
