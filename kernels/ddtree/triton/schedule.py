# mypy: allow-untyped-calls
"""How tree attention is laid over a GPU: tile sizes from the tuning table, and the number of parts."""

from dataclasses import dataclass

import triton

from ddtree.triton.device import Target, tuning

MAX_SPLITS = 64
SHORT = 2048  # tables of so many positions or fewer have tile sizes of their own, where they were tuned
MANY = 16  # so have so many requests or more, of any length: they fill the GPU with a block of rows each


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


def config_of(target: Target, rows: int, size: int, itemsize: int, length: int, requests: int) -> Config:
    """The tuned configuration: by whether the table is short, by head size (padded to a power of two), then by the rows
    that share a KV head, and by whether there are many requests.
    """
    if itemsize == 4:
        return Config(16, 32, 8, 1, 2)
    tables, key = tuning(target.arch), str(max(64, triton.next_power_of_2(size)))
    table = tables["attention"][key]
    if length <= SHORT:
        table = tables.get("short", {}).get(key, table)
    limit = str(next((limit for limit in sorted(map(int, table)) if rows <= limit), max(map(int, table))))
    many = tables.get("many", {}).get(key, {}) if requests >= MANY else {}
    return Config(**many.get(limit, table[limit]))


def splits_of(programs: int, places: int, tiles: int, config: Config) -> int:
    """Cuts of each line of tiles that end soonest: waves of programs, times what a program does, in tiles.

    Besides its share of the tiles each program has the tree's own keys to do, and with more than one cut it writes
    float32 partial results and they are read again: 8 bytes a row and element where a tile reads 4 a key and element.
    """
    merging = 2 * config.block_m / config.block_n

    def time(splits: int) -> float:
        waves = -(-programs * splits // places)
        return waves * (tiles / splits + 1 + (merging if splits > 1 else 0))

    return min(range(1, max(1, min(MAX_SPLITS, tiles // 2)) + 1), key=time)
