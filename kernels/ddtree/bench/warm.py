"""Compile in many processes, before anything is timed, what one process would compile piece by piece."""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from typing import Any

import torch

from ddtree.bench import attention, baselines, data, shapes, tune

Job = tuple[int, int, int, dict[str, Any]]
MOST = 1 << 19  # positions: several processes share the GPU's memory


def warm(sizes: list[int]) -> None:
    """Triton keeps its results on disk, where the processes that measure find them. What fails here fails there too,
    and is reported there.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(12, mp_context=context) as pool:
        list(pool.map(_once, jobs()))
    tune.possible(sizes)


def jobs() -> Iterator[Job]:
    """(batch, context, width, options) of all points that are not too large."""
    yield from (point_ for point_ in _points() if point_[0] * point_[1] <= MOST)


def _points() -> Iterator[Job]:
    yield from ((*point_, {}) for point_ in attention.GRID)
    yield from ((batch, context, 64, {"page": page}) for batch, context, page in attention.PAGED)
    for _, batch, context, width, options in shapes.points():
        yield batch, context, width, {name: v for name, v in options.items() if name not in ("check", "stock")}


def _once(job: Job) -> None:
    batch, context, width, options = job
    with suppress(Exception):
        case = data.attention(batch, context, width, **options)
        case.run()
        if case.page == 1 and case.key_pool.dtype == case.query.dtype:
            baselines.sglang_extend(case)()
        torch.cuda.synchronize()
