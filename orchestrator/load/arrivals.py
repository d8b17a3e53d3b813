"""When the requests of an open loop are due: drawn when the sweep is planned, so that every arm of a block meets the
same arrivals."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import InputError
from orchestrator.load.traces import TraceRow, read_trace
from orchestrator.prompts import Prompt
from orchestrator.spec import ArrivalSpec, WorkloadSpec


@dataclass(frozen=True)
class Arrival:
    """When a request is due, in seconds after the block's first, and the most tokens it may take."""

    at: float
    max_tokens: int


def trace_rows(spec: ArrivalSpec, prompts: int) -> tuple[TraceRow, ...]:
    """The rows of the trace, where one is replayed; else none. InputError unless there is one for every prompt."""
    if spec.trace is None:
        return ()
    rows = read_trace(Path(spec.trace).expanduser())
    if len(rows) < prompts:
        raise InputError(f"{spec.trace}: {len(rows)} requests for {prompts} prompts; none is replayed twice")
    return rows


def assign(
    prompts: Sequence[Prompt], workload: WorkloadSpec, block: int, rows: Sequence[TraceRow]
) -> tuple[tuple[Prompt, ...], tuple[Arrival, ...]]:
    """A block's prompts in the order they are sent, and when each is due; no arrivals for a closed loop.

    `rows`: as many rows of the trace as prompts, where a trace is replayed.
    """
    spec = workload.arrivals
    if spec.pattern == "closed":
        return tuple(prompts), ()
    if spec.pattern == "trace":
        order = by_length([sum(len(text) for _, text in prompt.messages) for prompt in prompts], rows)
        return tuple(prompts[index] for index in order), replayed(rows, spec.speed or 1.0, workload.max_tokens)
    due = offsets(spec, len(prompts), block)
    return tuple(prompts), tuple(Arrival(at, workload.max_tokens) for at in due)


def offsets(spec: ArrivalSpec, count: int, block: int) -> tuple[float, ...]:
    """Seconds from the first of `count` requests to each, for every pattern but `closed` and `trace`.

    `gamma` draws gaps with mean 1 / rate and squared coefficient of variation 1 / burstiness, as `vllm bench serve`
    does; `poisson` is burstiness 1. On a `ramp` the rate goes from `rate` to `to_rate` in equal steps of time.
    """
    assert spec.rate is not None
    if spec.pattern == "constant":
        return tuple(number / spec.rate for number in range(count))
    if spec.pattern == "ramp":
        assert spec.to_rate is not None
        return tuple(_ramp(number, count, spec.rate, spec.to_rate) for number in range(count))
    shape = spec.burstiness if spec.pattern == "gamma" and spec.burstiness else 1.0
    draw = random.Random(f"arrivals/{spec.seed}/{block}")
    gaps = (draw.gammavariate(shape, 1 / (spec.rate * shape)) for _ in range(count - 1))
    return _sums(gaps)


def replayed(rows: Sequence[TraceRow], speed: float, max_tokens: int) -> tuple[Arrival, ...]:
    """The trace's arrivals `speed` times as fast. A length in the trace only lowers the workload's `max_tokens`."""
    return tuple(Arrival((row.at - rows[0].at) / speed, max(1, min(row.output_tokens, max_tokens))) for row in rows)


def by_length(lengths: Sequence[int], rows: Sequence[TraceRow]) -> list[int]:
    """For each row the index of a prompt: the longest prompt goes to the row of the longest input, and so on down.

    A real prompt cannot be cut to a length without changing what it asks, and made-up ones mislead a drafter.
    """
    prompts = sorted(range(len(rows)), key=lambda index: lengths[index])
    places = sorted(range(len(rows)), key=lambda index: rows[index].input_tokens)
    chosen = dict(zip(places, prompts, strict=True))
    return [chosen[index] for index in range(len(rows))]


def _sums(gaps: Iterable[float]) -> tuple[float, ...]:
    return tuple(itertools.accumulate(gaps, initial=0.0))


def _ramp(number: int, count: int, first: float, last: float) -> float:
    """When a process whose rate goes evenly from `first` to `last` during `count` requests has had `number` of them."""
    growth = (last**2 - first**2) / (2 * count)
    if not growth:
        return number / first
    return (math.sqrt(first**2 + 2 * growth * number) - first) / growth
