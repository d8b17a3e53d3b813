"""What the machine did while a trial ran: sampled from /proc and NVML on a thread beside the load client."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import psutil

from orchestrator.disturbance import hidden, others
from orchestrator.gpus import Monitor
from orchestrator.leash import children, descendants
from orchestrator.validity import MachineLoad

if TYPE_CHECKING:
    import pandas as pd

INTERVAL_S = 0.4
_TREE_EVERY = 5
_JUDGED_S = 1.0  # /proc counts in ticks of 10 ms
_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGESIZE")


@dataclass(frozen=True)
class _Usage:
    """CPU seconds so far: of the whole machine, of the engine's processes, of the load client's and this one."""

    at: float
    busy: float
    idle: float
    engine: float
    client: float


class Sampler:
    """Samples from entering the block to leaving it. `root` is the process above the engine's, `client` the load
    client's; times count from `zero` on time.perf_counter's clock. What else this process started may hold memory of
    the GPU: a slot keeps engines up beside the one that is measured, and gives them nothing to do.
    """

    def __init__(self, root: int, zero: float, gpu_uuids: Sequence[str] = (), client: int | None = None) -> None:
        self._root = root
        self._client = client
        self._zero = zero
        self._uuids = gpu_uuids
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self._rows: list[dict[str, float]] = []
        self._hidden: int | None = None
        self._ours: set[int] = set()
        self._first = self._last = self._usage([])

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def rows(self) -> list[dict[str, float]]:
        """The samples so far."""
        return self._rows

    def frame(self) -> pd.DataFrame:
        """telemetry.parquet: one row a sample."""
        import pandas as pd

        return pd.DataFrame(self._rows)

    def load(self) -> MachineLoad | None:
        """How busy the machine was with anything else; None for too short a time to tell."""
        long_enough = self._last.at - self._first.at >= _JUDGED_S
        return _between(self._first, self._last) if long_enough else None

    def _run(self) -> None:
        monitor = Monitor(self._uuids)
        tree = self._tree()
        self._first = previous = self._usage(tree)
        beat, stopped = 0, False
        while not stopped:
            stopped = self._stop.wait(INTERVAL_S)
            beat += 1
            if beat % _TREE_EVERY == 0:
                tree = self._tree()
            self._last = self._usage(tree)
            self._rows.append(self._row(previous, tree, monitor))
            previous = self._last
        monitor.close()

    def _tree(self) -> list[int]:
        # Walking all of /proc holds the interpreter for milliseconds that the load client needs; hence not each time.
        families = children()
        self._ours = {self._root, *descendants(os.getpid(), families)}
        return [self._root, *descendants(self._root, families)]

    def _row(self, previous: _Usage, tree: Sequence[int], monitor: Monitor) -> dict[str, float]:
        load, now = _between(previous, self._last), self._last
        busy = (now.busy - previous.busy) / (now.at - previous.at)
        row = {
            "time": now.at - self._zero,
            "cpu_percent": min(100.0, 100 * busy / (os.cpu_count() or 1)),  # ticks come in steps
            "other_cpu_cores": load.other,
            "idle_cpu_cores": load.idle,
            "rss_bytes": float(sum(_rss(pid) for pid in tree)),
            "available_bytes": float(psutil.virtual_memory().available),
        }
        reading = monitor.read()
        if reading:
            row |= {
                "gpu_sm_clock_mhz": reading.sm_clock_mhz,
                "gpu_power_w": reading.power_w,
                "gpu_temperature_c": reading.temperature_c,
                "gpu_throttle_reasons": reading.throttle_reasons,
                "gpu_other_processes": self._others(reading.processes),
            }
        return row

    def _others(self, processes: frozenset[int]) -> int:
        alive = {pid for pid in processes if psutil.pid_exists(pid)}
        if self._hidden is None:
            self._hidden = hidden(processes, alive)
        return others(processes, self._ours, alive, self._hidden)

    def _usage(self, tree: Sequence[int]) -> _Usage:
        times = psutil.cpu_times()
        idle = times.idle + times.iowait
        busy = times.user + times.nice + times.system + times.irq + times.softirq + times.steal
        return _Usage(time.perf_counter(), busy, idle, sum(_cpu_seconds(pid) for pid in tree), self._client_seconds())

    def _client_seconds(self) -> float:
        """Of this process, which samples, and of the one that sends."""
        return time.process_time() + (_cpu_seconds(self._client) if self._client else 0.0)


def _between(first: _Usage, last: _Usage) -> MachineLoad:
    seconds = last.at - first.at
    ours = (last.engine - first.engine) + (last.client - first.client)
    return MachineLoad(max(0.0, last.busy - first.busy - ours) / seconds, (last.idle - first.idle) / seconds)


def _cpu_seconds(pid: int) -> float:
    """User and system time of a process and of its children that ended; 0 for one that is gone."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return sum(int(field) for field in fields[11:15]) / _TICK
    return 0.0


def _rss(pid: int) -> int:
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE
    return 0
