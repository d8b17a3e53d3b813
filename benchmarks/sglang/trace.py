"""A torch profiler's trace of a server's decode steps, as a table: where the time of a step goes.

SGLang marks each forward of its models with a span `step[MODE bs=N]`. A speculative step has two, the drafter's and
then the target's; what the GPU does between them and after them belongs to no model.
"""

from __future__ import annotations

import gzip
import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
_SPANS = ("step[TARGET_VERIFY", "step[DECODE")


@dataclass(frozen=True)
class Interval:
    """Microseconds on the GPU."""

    name: str
    start: float
    end: float


def table(path: Path, rows: int = 40) -> dict[str, Any]:
    """Microseconds a step: in all, busy, idle, by stage, and of the `rows` longest kernels of a stage. Where the trace
    marks no steps, of all of it as one, `unmarked`. ValueError for a trace without kernels.
    """
    return tabulated(json.loads(gzip.decompress(path.read_bytes()))["traceEvents"], rows)


def tabulated(events: Sequence[dict[str, Any]], rows: int) -> dict[str, Any]:
    """As `table`, of a trace's events."""
    kernels = _intervals(events, _GPU, ("",))
    spans = _intervals(events, ("gpu_user_annotation",), _SPANS)
    if not kernels:
        raise ValueError("the trace has no kernels")
    whole = Interval("unmarked", kernels[0].start, max(kernel.end for kernel in kernels))
    stages = _stages(spans) if len(spans) > 2 else [whole, Interval("unmarked", whole.end, whole.end)]
    firsts = [stage.start for stage in stages if stage.name == stages[0].name]
    begin, end, steps = firsts[0], firsts[-1], len(firsts) - 1
    inside = [kernel for kernel in kernels if begin <= kernel.start < end]
    busy = _busy(inside)
    sums, calls = defaultdict[tuple[str, str], float](float), defaultdict[tuple[str, str], int](int)
    for kernel in inside:
        stage = _stage_of(kernel, stages)
        sums[stage, kernel.name] += kernel.end - kernel.start
        calls[stage, kernel.name] += 1
    listed = sorted(sums, key=lambda key: -sums[key])[:rows]
    return {
        "steps": steps,
        "step_us": _rounded((end - begin) / steps),
        "busy_us": _rounded(busy / steps),
        "idle_us": _rounded((end - begin - busy) / steps),
        "stages_us": {
            name: _rounded(sum(us for (stage, _), us in sums.items() if stage == name) / steps)
            for name in dict.fromkeys(stage for stage, _ in sums)
        },
        "kernels": [
            {
                "stage": stage,
                "kernel": name[:160],
                "calls": round(calls[stage, name] / steps, 2),
                "us": _rounded(sums[stage, name] / steps),
            }
            for stage, name in listed
        ],
    }


def _intervals(events: Sequence[dict[str, Any]], kinds: tuple[str, ...], names: tuple[str, ...]) -> list[Interval]:
    found = [
        Interval(event["name"], float(event["ts"]), float(event["ts"]) + float(event["dur"]))
        for event in events
        if event.get("ph") == "X" and event.get("cat") in kinds and event["name"].startswith(names)
    ]
    return sorted(found, key=lambda interval: interval.start)


def _stages(spans: Sequence[Interval]) -> list[Interval]:
    """The spans as `draft` and `verify`, or `decode` where all are the target's. Of the two that alternate the longer
    one is the target's, which has the more layers.
    """
    if not spans or spans[0].name.startswith("step[DECODE"):
        return [Interval("decode", span.start, span.end) for span in spans]
    even, odd = (sum(span.end - span.start for span in spans[start::2]) for start in (0, 1))
    names = ("verify", "draft") if even > odd else ("draft", "verify")
    return [Interval(names[index % 2], span.start, span.end) for index, span in enumerate(spans)]


def _stage_of(kernel: Interval, stages: Sequence[Interval]) -> str:
    """The span that the kernel starts in, or `after` the span before it."""
    span = stages[bisect_right([stage.start for stage in stages], kernel.start) - 1]
    return span.name if kernel.start < span.end else f"after {span.name}"


def _busy(kernels: Sequence[Interval]) -> float:
    """Time in which at least one kernel ran; they come in order of their starts."""
    busy, until = 0.0, float("-inf")
    for kernel in kernels:
        busy += max(0.0, kernel.end - max(kernel.start, until))
        until = max(until, kernel.end)
    return busy


def _rounded(us: float) -> float:
    return round(us, 2)
