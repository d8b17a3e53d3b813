# mypy: allow-untyped-calls
"""How tree attention is laid over a GPU: tile sizes from the tuning table, and the number of parts."""

from dataclasses import dataclass

import triton

from ddtree.triton.device import Target, tuning

MAX_SPLITS = 64


@dataclass(frozen=True)
class Config:
    """Tile sizes, warps and pipeline stages of `attend`, how many of its programs a multiprocessor holds, and the most
    registers a thread may use for that (0: no limit).
    """

    block_m: int
    block_n: int
    warps: int
    stages: int
    resident: int
    registers: int = 0


def config_of(target: Target, rows: int, size: int, itemsize: int) -> Config:
    """The tuned configuration: first by head size (padded to a power of two), then by the rows that share a KV head."""
    if itemsize == 4:
        return Config(16, 32, 8, 1, 2)
    table = tuning(target.arch)["attention"][str(max(64, triton.next_power_of_2(size)))]
    limit = next((limit for limit in sorted(map(int, table)) if rows <= limit), max(map(int, table)))
    return Config(**table[str(limit)])


def splits_of(programs: int, places: int, tiles: int) -> int:
    """Cuts of each line of tiles: what leaves the fewest places idle, against the cost of merging."""

    def time(splits: int) -> float:
        waves = -(-programs * splits // places)
        return waves / splits * (1.05 if splits > 1 else 1.0) + 0.0005 * splits

    return min(range(1, max(1, min(MAX_SPLITS, tiles // 2)) + 1), key=time)
