"""Where a step's time goes, from made-up traces."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.sglang.trace import table, tabulated


def event(category: str, name: str, start: float, length: float) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": length}


def speculative(steps: int, first: str = "draft") -> list[dict[str, Any]]:
    """Steps of 100 us: 10 of draft, 5 of tree, 60 of verify, 10 of commit, 15 in which nothing runs."""
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name"}]
    for step in range(steps):
        at = 1000.0 + 100 * step
        if first == "draft" or step:
            events.append(event("gpu_user_annotation", "step[TARGET_VERIFY bs=1]", at, 10))
        events.append(event("kernel", "gemm", at, 10))
        events.append(event("kernel", "tree", at + 10, 5))
        events.append(event("gpu_user_annotation", "step[TARGET_VERIFY bs=1]", at + 15, 60))
        events += [event("kernel", "gemm", at + 15, 40), event("kernel", "attend", at + 45, 30)]
        events.append(event("gpu_memcpy", "Memcpy DtoH", at + 75, 10))
    return events


def test_a_step_s_time_by_stage_and_by_kernel() -> None:
    found = tabulated(speculative(5), 10)
    assert (found["steps"], found["step_us"], found["busy_us"], found["idle_us"]) == (4, 100, 85, 15)
    assert found["stages_us"] == {"draft": 10, "after draft": 5, "verify": 70, "after verify": 10}
    assert found["kernels"][0] == {"stage": "verify", "kernel": "gemm", "calls": 1, "us": 40}
    assert len(tabulated(speculative(5), 2)["kernels"]) == 2


def test_a_trace_that_begins_within_a_step() -> None:
    found = tabulated(speculative(5, first="verify"), 10)
    assert found["stages_us"] == {"verify": 70, "after verify": 10, "draft": 10, "after draft": 5}


def test_plain_decoding_has_one_forward_a_step(tmp_path: Path) -> None:
    events = [event("gpu_user_annotation", "step[DECODE bs=4]", 50.0 * step, 40) for step in range(3)]
    events += [event("kernel", "gemm", 50.0 * step + 5, 30) for step in range(3)]
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    found = table(path)
    assert (found["step_us"], found["idle_us"], found["stages_us"]) == (50, 20, {"decode": 30})


def test_a_trace_without_marks_is_one_step() -> None:
    found = tabulated([event("kernel", "gemm", 10, 5), event("kernel", "gemm", 20, 10)], 5)
    assert (found["steps"], found["step_us"], found["idle_us"], found["stages_us"]) == (1, 20, 5, {"unmarked": 15})


def test_a_trace_without_kernels_is_refused() -> None:
    with pytest.raises(ValueError, match="the trace has no kernels"):
        tabulated(speculative(0), 5)
