"""Times of tree attention over the grid of the bars, at the 8B shape: 32 heads, 8 KV heads, head size 128, bf16."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import torch

from ddtree.bench import baselines, checks, data
from ddtree.bench.clock import copies, time_us
from ddtree.bench.table import Check, Gap, Limits, Row, guarded, reason_of

GRID = [(b, c, w) for b in (1, 4, 16, 64) for c in (1024, 8192, 32768) for w in (8, 16, 32, 64, 128)]
PAGED = [(b, c, page) for page in (16, 64) for b, c in ((1, 32768), (16, 8192))]
Result = Row | Check | Gap


def rows(limits: Limits) -> Iterator[Result]:
    """Stock kernels are checked before they are timed."""
    if stock_gap():
        yield Gap("SGLang's stock kernel", stock_gap(), ours=False)
    # What the bars name comes first.
    for batch, context, width in sorted(GRID, key=lambda point: point[0] * point[1] > 131072):
        label = f"batch {batch} context {context} width {width} page 1"
        yield from guarded(f"attention {label}", point(limits, label, batch, context, width, check=context == 1024))
    for batch, context, page in PAGED:
        label = f"batch {batch} context {context} width 64 page {page}"
        yield from guarded(f"attention {label}", point(limits, label, batch, context, 64, stock=False, page=page))


def cases(batch: int, context: int, width: int, **options: Any) -> list[data.Attention]:
    """Inputs to rotate through, as the layers of a model would."""
    first = data.attention(batch, context, width, **options)
    size = 2 * first.key_pool.nbytes
    return [first, *(data.attention(batch, context, width, **options) for _ in range(copies(size, 12) - 1))]


def point(
    limits: Limits,
    label: str,
    batch: int,
    context: int,
    width: int,
    *,
    stock: bool = True,
    check: bool = False,
    **options: Any,
) -> Iterator[Result]:
    """One row, and SGLang's stock kernel beside it where there is one; `check` compares that with float64 first."""
    inputs = cases(batch, context, width, **options)
    others: dict[str, float] = {}
    if stock and not stock_gap():
        try:
            runs = [baselines.sglang_extend(case) for case in inputs]
            if check:
                yield checks.attention_error(inputs[0], runs[0], f"stock SGLang, {label}")
            others["SGLang"] = time_us(runs, replays=7)
        except Exception as error:  # another's kernel that fails is no reason to lose our row
            yield Gap(f"SGLang, {label}", reason_of(error), ours=False)
    yield row(inputs, label, limits, others)


def row(inputs: list[data.Attention], label: str, limits: Limits, others: dict[str, float]) -> Row:
    """Keys and values of the prefix and of the nodes, queries and results are what must move."""
    us = time_us([case.run for case in inputs], replays=7)
    case = inputs[0]
    batch, width, heads, size = case.query.shape
    kv_heads, context = case.tree_keys.shape[2], int(case.prefix_lens[0])
    prefix = context * kv_heads * case.key_pool.element_size()
    own = width * (kv_heads + heads) * case.query.element_size()
    by_bytes = batch * 2 * size * (prefix + own) / limits.bandwidth
    by_operations = 4 * batch * heads * width * (context + width) * size / limits.rate
    bounds = ((by_bytes, "bytes"), (by_operations, "operations"), (limits.launch_us, "a launch"))
    return Row("attention", label, us, *max(bounds), others)


@lru_cache
def stock_gap() -> str:
    """Why SGLang's stock kernel cannot be measured, or nothing."""
    try:
        baselines.sglang_extend(data.attention(1, 64, 8))()
        torch.cuda.synchronize()
    except Exception as error:  # whatever an engine's import raises, it only means that there is no baseline
        return reason_of(error)
    return ""
