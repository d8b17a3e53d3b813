"""What the committed measurements of the tree kernels say against the bars, and that the pages say the same."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RESULT: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / "kernels-h200.json").read_text())
PAGES = {path.stem: path.read_text() for path in (ROOT / "docs" / "kernels").glob("*.md")}
GRID = [(b, c, w) for b in (1, 4, 16, 64) for c in (1024, 8192, 32768) for w in (8, 16, 32, 64, 128)]


def row(kernel: str, shape: str, baseline: str | None = None) -> dict[str, Any]:
    """The one measurement of a shape, against that baseline where one is named."""
    fitting = [r for r in RESULT["rows"] if (r["kernel"], r["shape"]) == (kernel, shape)]
    (found,) = [r for r in fitting if baseline is None or baseline in r["baselines"]]
    return dict(found)


def attention(batch: int, context: int, width: int) -> tuple[float, float]:
    """Microseconds of ours and of SGLang's stock kernel."""
    found = row("attention", f"batch {batch} context {context} width {width} page 1", "SGLang")
    return found["us"], found["baselines"]["SGLang"]


def shown(us: float) -> str:
    return f"{us:.1f}" if us < 100 else f"{us:.0f}"


@pytest.mark.parametrize(("batch", "context", "width"), GRID)
def test_attention_is_nowhere_slower_than_sglang_s_own(batch: int, context: int, width: int) -> None:
    ours, theirs = attention(batch, context, width)
    assert ours < theirs
    assert re.search(rf"\| {batch} \| {context} \| {width} \| 1 \| {shown(ours)} \| ", PAGES["attention"])


def test_the_bars_of_a_long_context_of_trees_and_of_a_step_are_reached() -> None:
    for width in (8, 16, 32, 64, 128):
        ours, theirs = attention(1, 32768, width)
        assert theirs >= 3 * ours
    for batch in (1, 8, 32):
        assert row("tree", f"batch {batch} budget 63 depth 15 K 16")["us"] < 40
    assert row("topk", "[1, 15, 151936] bf16 k=16")["us"] < 25
    assert row("whole step", "batch 1 budget 63, all but the models")["us"] < 120


def test_the_bar_that_is_missed_is_told() -> None:
    """80 % of the copy bandwidth at batch 16 and context 8k: reached up to width 32."""
    read = 16 * 8192 * 2 * 8 * 128 * 2
    shares = {w: read / attention(16, 8192, w)[0] / (RESULT["copy_tb_s"] * 1e6) for w in (8, 16, 32, 64)}
    assert [width for width, share in shares.items() if share < 0.8] == [64]
    assert f"Width 64 misses it: {shown(attention(16, 8192, 64)[0])} µs" in PAGES["attention"]
    assert f"{100 * shares[64]:.0f} %" in PAGES["attention"]


def test_nothing_failed_and_the_pages_have_the_numbers() -> None:
    assert (RESULT["failed"], RESULT["gaps"]) == ([], [])
    assert [tool["errors"] for tool in RESULT["sanitizer"]] == [0, 0]
    for kernel, page in (("tree", "tree"), ("topk", "topk"), ("sample", "sample"), ("accept", "accept")):
        for found in (r for r in RESULT["rows"] if r["kernel"] == kernel):
            assert f"| {found['shape']} | {shown(found['us'])} | " in PAGES[page]
    assert f"{shown(row('topk', '[1, 15, 151936] bf16 k=16')['us'])} µs at [1, 15, 152k]" in PAGES["topk"]
