"""Times of tree attention at the 8B shape: 32 heads, 8 KV heads, head size 128, bf16."""

import sys
from collections.abc import Callable, Iterator

import torch

from ddtree.bench import baselines, checks, data
from ddtree.bench.clock import copies, eager_us, time_us
from ddtree.bench.table import Check, Limits, Row

GRID = [(b, c, w) for b in (1, 4, 16, 64) for c in (1024, 8192, 32768) for w in (8, 16, 32, 64, 128)]
DENSE = [(1, 8192, 64), (16, 8192, 64)]
Maker = Callable[[data.Attention], Callable[[], torch.Tensor]]


def cases(batch: int, context: int, width: int, page: int = 1) -> list[data.Attention]:
    """Inputs to rotate through, as the layers of a model would."""
    return [data.attention(batch, context, width, page=page) for _ in range(copies(batch * context * 4096, 12))]


def rows(limits: Limits, dense: bool) -> Iterator[Row | Check]:
    """Stock kernels are checked before they are timed."""
    stock = _stock_reason()
    if stock:
        print(f"SGLang's stock kernel is not measured: {stock}", file=sys.stderr)  # noqa: T201
    for batch, context, width in GRID:
        inputs = cases(batch, context, width)
        others: dict[str, float] = {}
        if not stock:
            if context == 1024:
                run = baselines.sglang_extend(inputs[0])
                yield checks.attention_error(inputs[0], run, f"stock SGLang, batch {batch} width {width}")
            others["SGLang"] = time_us([baselines.sglang_extend(case) for case in inputs], replays=7)
        yield _row(inputs, batch, context, width, 1, limits, others)
    for page in (16, 64):
        for batch, context in ((1, 32768), (16, 8192)):
            yield _row(cases(batch, context, 64, page), batch, context, 64, page, limits, {})
    # Last, because compiling FlexAttention takes long.
    for batch, context, width in DENSE if dense else ():
        inputs = cases(batch, context, width)
        yield _row(inputs, batch, context, width, 1, limits, _dense(inputs[0]))


def _row(
    inputs: list[data.Attention],
    batch: int,
    context: int,
    width: int,
    page: int,
    limits: Limits,
    others: dict[str, float],
) -> Row:
    us = time_us([case.run for case in inputs], replays=7)
    # Keys and values of 8 heads, of the prefix and of the nodes; queries and results of 32.
    by_bytes = batch * (context * 16 + width * (16 + 64)) * 128 * 2 / limits.bandwidth
    by_operations = 4 * batch * 32 * width * (context + width) * 128 / limits.rate
    floor, reason = max((by_bytes, "bytes"), (by_operations, "operations"))
    return Row("attention", f"batch {batch} context {context} width {width} page {page}", us, floor, reason, others)


def _stock_reason() -> str:
    try:
        baselines.sglang_extend(data.attention(1, 64, 8))()
    except Exception as error:  # whatever an engine's import raises, it only means that there is no baseline
        return f"{type(error).__name__}: {error}"
    return ""


def _dense(case: data.Attention) -> dict[str, float]:
    times: dict[str, float] = {}
    makers: dict[str, Maker] = {"SDPA": baselines.sdpa, "Flex": baselines.flex}
    for name, make in makers.items():
        try:
            times[name] = eager_us([make(case)] * 10)
        except Exception as error:
            print(f"{name} is not measured: {type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201
    return times
