"""Search for the attention's tile sizes on the GPU at hand; the result replaces a file of ddtree/tuning."""

import copy
import multiprocessing
import statistics
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from itertools import product
from typing import Any

import torch

from ddtree.bench import data
from ddtree.bench.clock import copies, time_us
from ddtree.triton.attention import tree_attention
from ddtree.triton.device import target_of, tuning
from ddtree.triton.schedule import Config

SHARED = {True: 220 * 1024, False: 99 * 1024}  # bytes a block may have: Hopper, and the rest
# (batch, context) by the part of the table that they decide.
LOADS = {"short": ((1, 1024), (4, 1024)), "attention": ((1, 8192), (16, 4096)), "many": ((16, 1024), (64, 1024))}
HEADS = 4  # query heads a KV head of `data.attention`
Times = dict[str, list[float]]


def candidates(size: int, rows: int, large: bool) -> Iterator[Config]:
    """Configurations worth trying for a head size and a number of rows."""
    for block_m, block_n, stages in product((32, 64, 128, 256), (32, 64, 128), (2, 3, 5)):
        # Hopper's matrix instructions take 64 rows, so fewer only pay where fewer exist.
        if block_m > max(rows, 32) or (block_m == 32 and large and rows > 32) or (block_m == 256 and not large):
            continue
        if stages == 2 and large:  # one buffer: for small shared memories
            continue
        buffers = 2 if stages == 3 else max(1, stages - 2)
        shared = (block_m + 2 * block_n * buffers) * size * 2
        if block_n * size > 16384 or shared > SHARED[large]:
            continue
        warps = max(4, block_m // 16)
        resident = 2 if 2 * shared <= SHARED[large] and block_m < 256 else 1
        yield Config(block_m, block_n, warps, stages, resident)
        if block_m == 128 and resident == 2:
            yield Config(block_m, block_n, warps, stages, 2, 128)
            yield Config(block_m, block_n, warps, stages, 1)


def _run(case: data.Attention, config: Config, splits: int | None = None) -> torch.Tensor:
    arguments = case.arguments()
    longest = arguments["table"].shape[-1] * case.page
    options = {"page_size": case.page, "rows": None, "scale": case.query.shape[3] ** -0.5, "window": None}
    return tree_attention(**arguments, **options, longest=longest, config=config, splits=splits)


def compiles(job: tuple[int, Config]) -> bool:
    """Whether a configuration runs for a head size, whole and in parts."""
    size, config = job
    try:
        case = data.attention(1, 1024, 8 if config.block_m == 32 else 64, size=size)
        for splits in (1, 4):
            _run(case, config, splits)
        torch.cuda.synchronize()
    except Exception:  # it does not compile, or does not fit: no candidate
        return False
    return True


def possible(sizes: list[int], row_counts: Iterable[int] = data.ROWS) -> set[tuple[int, Config]]:
    """(head size, configuration) that compile and run. What one process compiles another finds in Triton's cache."""
    large = 90 <= target_of(torch.device("cuda")).arch < 120
    jobs = list(dict.fromkeys((s, c) for s in sizes for rows in row_counts for c in candidates(s, rows, large)))
    with ProcessPoolExecutor(12, mp_context=multiprocessing.get_context("spawn")) as pool:
        return {job for job, good in zip(jobs, pool.map(compiles, jobs), strict=True) if good}


def _times(size: int, rows: int, configs: list[Config]) -> list[Times]:
    """Microseconds of every configuration under every load."""
    found: list[Times] = [{part: [] for part in LOADS} for _ in configs]
    for part, loads in LOADS.items():
        for batch, context in loads:
            count = copies(batch * context * size * 32, 8)
            inputs = [data.attention(batch, context, rows // HEADS, size=size) for _ in range(count)]
            for times, config in zip(found, configs, strict=True):
                calls = [partial(_run, case, config) for case in inputs]
                times[part].append(time_us(calls, replays=4, graph_us=3000.0))
    return found


def tune(sizes: list[int], row_counts: list[int], seconds: float) -> Iterator[dict[str, Any]]:
    """Report after report, each with one more head size and number of rows; `seconds` end the search early.

    The fastest configuration by geometric mean over the loads of each part. What is not reached keeps the entries of
    the packaged table.
    """
    started = time.monotonic()
    target = target_of(torch.device("cuda"))
    table, log = copy.deepcopy(tuning(target.arch)), []
    jobs = possible(sizes, row_counts)
    large = 90 <= target.arch < 120
    for size, rows in product(sizes, row_counts):
        if time.monotonic() - started > seconds:
            print(f"stopped before head {size} rows {rows}: {seconds:.0f} s are over", flush=True)  # noqa: T201
            return
        configs = [config for config in candidates(size, rows, large) if (size, config) in jobs]
        measured = list(zip(_times(size, rows, configs), configs, strict=True))
        for part in LOADS:
            measured.sort(key=lambda item: statistics.geometric_mean(item[0][part]))
            _entries(table, part, size)[str(rows)] = asdict(measured[0][1])
            log += [{"part": part, "head": size, "rows": rows, "us": t, **asdict(c)} for t, c in measured[:4]]
            print(f"{part} head {size} rows {rows} {measured[0]}", flush=True)  # noqa: T201
        yield {**table, "loads": LOADS, "measured": log}


def _entries(table: dict[str, Any], part: str, size: int) -> dict[str, Any]:
    """The part's entries of a head size. A short part begins as what it replaces, so that it lacks no rows."""
    if part == "short" and str(size) not in table.setdefault("short", {}):
        table["short"][str(size)] = copy.deepcopy(table["attention"].get(str(size), {}))
    entries: dict[str, Any] = table.setdefault(part, {}).setdefault(str(size), {})
    return entries
