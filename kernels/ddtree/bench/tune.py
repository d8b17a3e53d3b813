"""Search for the attention's tile sizes on the GPU at hand; the result replaces a file of ddtree/tuning."""

import multiprocessing
import statistics
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from itertools import product

import torch

from ddtree.bench import data
from ddtree.bench.clock import copies, time_us
from ddtree.triton.attention import tree_attention
from ddtree.triton.device import target_of
from ddtree.triton.schedule import Config

SHARED = {True: 220 * 1024, False: 99 * 1024}  # bytes a block may have: Hopper, and the rest
LOADS = ((1, 8192), (4, 8192), (16, 4096), (64, 1024))  # (batch, context)
# Rows that share a KV head, and the tree width that makes so many with four query heads a KV head.
WIDTHS = {32: 8, 64: 16, 128: 32, 256: 64, 512: 128}
Job = tuple[int, int, Config]


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


def _run(case: data.Attention, config: Config) -> torch.Tensor:
    options = {"page_size": case.page, "rows": None, "scale": case.query.shape[3] ** -0.5, "window": None}
    return tree_attention(**case.arguments(), **options, config=config)


def _compiles(job: Job) -> bool:
    size, rows, config = job
    try:
        for batch, context in LOADS:
            _run(data.attention(batch, context, WIDTHS[rows], size=size), config)
        torch.cuda.synchronize()
    except Exception:  # it does not compile, or does not fit: no candidate
        return False
    return True


def _times(size: int, rows: int, configs: list[Config]) -> list[list[float]]:
    """Microseconds of every configuration under every load."""
    columns = []
    for batch, context in LOADS:
        count = copies(batch * context * size * 32, 8)
        inputs = [data.attention(batch, context, WIDTHS[rows], size=size) for _ in range(count)]
        columns.append([time_us([partial(_run, case, config) for case in inputs], replays=5) for config in configs])
    return [list(times) for times in zip(*columns, strict=True)]


def tune(sizes: list[int]) -> dict[str, object]:
    """The fastest configuration by geometric mean over LOADS for each head size and number of rows."""
    large = 90 <= target_of(torch.device("cuda")).arch < 120
    jobs = [(size, rows, config) for size in sizes for rows in WIDTHS for config in candidates(size, rows, large)]
    # Compiling is most of the work, and what one process compiles another finds in Triton's cache.
    with ProcessPoolExecutor(12, mp_context=multiprocessing.get_context("spawn")) as pool:
        jobs = [job for job, compiles in zip(jobs, pool.map(_compiles, jobs), strict=True) if compiles]
    table: dict[str, dict[str, object]] = {}
    log = []
    for size, rows in product(sizes, WIDTHS):
        configs = [config for *group, config in jobs if group == [size, rows]]
        measured = list(zip(_times(size, rows, configs), configs, strict=True))
        measured.sort(key=lambda item: statistics.geometric_mean(item[0]))
        table.setdefault(str(size), {})[str(rows)] = asdict(measured[0][1])
        for times, config in measured[:4]:
            shown = " ".join(f"{us:8.1f}" for us in times)
            print(f"head {size} rows {rows} {shown} us  {config}", flush=True)  # noqa: T201
            log.append({"head": size, "rows": rows, "us": times, **asdict(config)})
    return {"attention": table, "measured": log}
