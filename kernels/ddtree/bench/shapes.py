"""Times of tree attention away from the grid of the bars: models, head sizes, long contexts, float8 pools."""

from collections.abc import Iterator
from typing import Any

import torch

from ddtree.bench.attention import Result, point
from ddtree.bench.table import Limits, guarded

# (heads, KV heads, head size)
MODELS = {"SmolLM2-135M": (9, 3, 64), "Qwen3-8B": (32, 8, 128)}
WIDTHS = (8, 16, 32, 33, 48, 64, 65, 96, 128)
LONG = [(b, c, w) for b in (1, 16) for c in (65536, 131072) for w in (8, 64, 128)] + [(64, 131072, 64)]
SIZES = [(96, 32, 8), (256, 16, 8)]
LOADS = ((1, 8192), (16, 8192))


def rows(limits: Limits) -> Iterator[Result]:
    """Each against SGLang's stock kernel, but for float8, which that computes in float8."""
    for label, batch, context, width, options in points():
        yield from guarded(f"attention {label}", point(limits, label, batch, context, width, **options))


def points() -> Iterator[tuple[str, int, int, int, dict[str, Any]]]:
    """(label, batch, context, width, options of `attention.point`)."""
    for name, (heads, kv_heads, size) in MODELS.items():
        for batch in (1, 8):
            for width in WIDTHS:
                shape = {"heads": heads, "kv_heads": kv_heads, "size": size, "check": batch == 1}
                yield f"{name}: batch {batch} context 2048 width {width} page 1", batch, 2048, width, shape
    for batch, context, width in LONG:
        yield f"batch {batch} context {context} width {width} page 1", batch, context, width, {}
    for batch, context, width in ((1, 32768, 64), (16, 8192, 16), (16, 8192, 64)):
        options = {"pool_dtype": torch.float8_e4m3fn, "stock": False}
        yield f"float8 pools: batch {batch} context {context} width {width} page 1", batch, context, width, options
    for size, heads, kv_heads in SIZES:
        for batch, context in LOADS:
            shape = {"heads": heads, "kv_heads": kv_heads, "size": size}
            yield f"head size {size}: batch {batch} context {context} width 64 page 1", batch, context, 64, shape
