"""One load generator against the simulated server: both pinned, watched, and compared request by request."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from benchmarks.load_peers import Heard, Load, Peer
from benchmarks.load_server import TOKENS
from orchestrator.load import frames
from orchestrator.load.cores import pinned

OURS = "orchestrate"
CHUNKS = 200
_LIMIT_S = 300.0


@dataclass(frozen=True)
class Scenario:
    """`streams` at a time, a chunk every `gap_ms` in each. `rounds` requests a stream."""

    name: str
    streams: int
    gap_ms: float
    rounds: int
    lockstep: bool = False

    @property
    def offered(self) -> float:
        """Chunks a second."""
        return 1e3 * self.streams / self.gap_ms


@dataclass(frozen=True)
class Result:
    """One client in one scenario. Errors are absolute; None where the client does not keep what they need.

    `startup_s`: from its start to its first request's arrival. `cpu_s_per_100k_chunks`: from there to the last chunk.
    `squeezed_share`: gaps recorded as less than a tenth of the true one.
    """

    client: str
    scenario: str
    requests: int
    chunks_per_s: float
    cpu_s_per_100k_chunks: float
    ttft_error_ms_mean: float
    ttft_error_ms_p99: float
    gap_error_ms_p99: float | None
    squeezed_share: float | None
    startup_s: float
    memory_mb: float


class Meter(threading.Thread):
    """Samples CPU seconds and memory of a process and everything below it, four times a second.

    From a few files of /proc, as walking all of it takes milliseconds; and on the server's CPU, whose stamps say when
    it was held up.
    """

    def __init__(self, pid: int, cpu: int) -> None:
        super().__init__(daemon=True)
        self._root = pid
        self._cpu = cpu
        self._stopped = threading.Event()
        self._used: dict[int, int] = {}
        self.samples: list[tuple[float, float]] = []
        self.memory = 0

    def run(self) -> None:
        os.sched_setaffinity(0, {self._cpu})  # this thread's
        while not self._stopped.wait(0.25):
            memory = 0
            for pid in _tree(self._root):
                with contextlib.suppress(OSError, ValueError, IndexError):  # it has just ended
                    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
                    self._used[pid] = int(fields[11]) + int(fields[12])
                    memory += int(fields[21]) * os.sysconf("SC_PAGESIZE")
            self.memory = max(self.memory, memory)
            self.samples.append((time.perf_counter(), sum(self._used.values()) / os.sysconf("SC_CLK_TCK")))

    def between(self, start: float, end: float) -> float:
        """CPU seconds used between two moments."""
        self._stopped.set()
        self.join()
        at, used = np.array(self.samples).T
        return float(np.interp(end, at, used) - np.interp(start, at, used))


def _tree(root: int) -> list[int]:
    """The process and all below it."""
    found = [root]
    for pid in found:
        for listed in Path(f"/proc/{pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += [int(child) for child in listed.read_text().split()]
    return found


class Mock:
    """The simulated server on a CPU of its own, and after `close` what it says it sent."""

    def __init__(self, scenario: Scenario, cpu: int, folder: Path) -> None:
        self._log = folder / "server.json"
        command = [sys.executable, "-m", "benchmarks.load_server", "--gap-ms", str(scenario.gap_ms)]
        command += ["--chunks", str(CHUNKS), "--log", str(self._log)] + ["--lockstep"] * scenario.lockstep
        with pinned({cpu}):
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.port = int(cast(BinaryIO, self._process.stdout).readline())

    def close(self) -> dict[int, dict[str, Any]]:
        """What was sent, by the number of the request; only whole answers."""
        cast(BinaryIO, self._process.stdin).close()
        self._process.wait()
        told = json.loads(self._log.read_text())
        return {answer["serial"]: answer for answer in told if len(answer["sends"]) == CHUNKS}


def measure(client: Peer | None, scenario: Scenario, tokenizer: Path, cpus: Sequence[int]) -> Result:
    """Run one client in one scenario; None is ours."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        mock = Mock(scenario, cpus[0], folder)
        requests, wall = scenario.streams * scenario.rounds, time.time() - time.perf_counter()
        load = Load(mock.port, scenario.streams, requests, CHUNKS * TOKENS, tokenizer, folder, wall)
        began = time.perf_counter()
        try:
            heard, meter = _run(client, load, cpus)
        finally:
            sent = mock.close()
        return _result(client.name if client else OURS, scenario, heard, sent, meter, began)


def _run(client: Peer | None, load: Load, cpus: Sequence[int]) -> tuple[list[Heard], Meter]:
    if client is None:
        return _run_ours(load, cpus)
    with (load.folder / "output.txt").open("w") as output, pinned({cpus[1]}):
        process = subprocess.Popen(
            client.command(client.python, load), stdout=output, stderr=output, cwd=load.folder, env=_environment()
        )
    meter = Meter(process.pid, cpus[0])
    meter.start()
    try:
        code = process.wait(_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    if code:
        tail = (load.folder / "output.txt").read_text().strip().splitlines()[-3:]
        raise RuntimeError(f"{client.name} ended with exit code {code}: {' / '.join(tail)}")
    return list(client.heard(load)), meter


def _environment() -> dict[str, str]:
    """Ours without our code in it."""
    return os.environ | {"PYTHONPATH": "", "VLLM_LOGGING_LEVEL": "ERROR"}


def _run_ours(load: Load, cpus: Sequence[int]) -> tuple[list[Heard], Meter]:
    with pinned({cpus[1]}):
        process = subprocess.Popen(
            [sys.executable, "-m", "orchestrator.load.child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
    meter = Meter(process.pid, cpus[0])
    meter.start()
    to_child, from_child = cast(BinaryIO, process.stdin), cast(BinaryIO, process.stdout)
    hello = {"host": "127.0.0.1", "port": load.port, "path": "/v1/chat/completions", "headers": {}, "reader": ""}
    body: dict[str, object] = {"model": "mock", "messages": [{"role": "user", "content": "What comes next, and why?"}]}
    body |= {"stream": True, "max_tokens": load.tokens, "return_token_ids": True}
    frames.write(to_child, hello | {"timeout_s": _LIMIT_S})
    frames.write(to_child, {"bodies": [body] * load.requests, "offsets": None, "slots": load.streams})
    while "streams" not in (message := frames.read(from_child) or {"streams": []}):
        pass
    to_child.close()
    process.wait()
    return [_heard(stream) for stream in message["streams"]], meter


def _heard(stream: dict[str, Any]) -> Heard:
    if stream["error"] or len(stream["token_ids"]) != CHUNKS * TOKENS:
        raise RuntimeError(f"ours: {stream['error'] or 'tokens are missing'}")
    found = re.match(r"r(\d+) ", stream["text"])
    assert found is not None
    return Heard(int(found.group(1)), stream["times"][0], _gaps(stream["times"]))


def _gaps(times: Iterable[float]) -> tuple[float, ...]:
    return tuple(after - before for before, after in pairwise(times))


def _result(
    client: str, scenario: Scenario, heard: Sequence[Heard], sent: dict[int, dict[str, Any]], meter: Meter, began: float
) -> Result:
    known = [item for item in heard if item.serial in sent]
    if len(known) < 0.9 * scenario.streams * scenario.rounds:
        raise RuntimeError(f"{client}: only {len(known)} of its requests are known to the server")
    start = min(answer["received"] for answer in sent.values())
    first = min(answer["sends"][0] for answer in sent.values())
    end = max(answer["sends"][-1] for answer in sent.values())
    chunks = CHUNKS * len(sent)
    errors = np.abs([item.first - sent[item.serial]["sends"][0] for item in known])
    gap_errors, squeezed = _gap_errors(known, sent)
    return Result(
        client=client,
        scenario=scenario.name,
        requests=len(known),
        chunks_per_s=chunks / (end - first),
        cpu_s_per_100k_chunks=1e5 * meter.between(start, end) / chunks,
        ttft_error_ms_mean=1e3 * float(errors.mean()),
        ttft_error_ms_p99=1e3 * float(np.percentile(errors, 99)),
        gap_error_ms_p99=gap_errors,
        squeezed_share=squeezed,
        startup_s=start - began,
        memory_mb=meter.memory / 1e6,
    )


def _gap_errors(known: Sequence[Heard], sent: dict[int, dict[str, Any]]) -> tuple[float | None, float | None]:
    """99th percentile in ms, and the share of gaps that were recorded as less than a tenth of the true one."""
    pairs = [(item.gaps, _gaps(sent[item.serial]["sends"])) for item in known if item.gaps]
    whole = [(told, true) for told, true in pairs if len(told) == len(true)]
    if not whole:
        return None, None
    told, true = (np.concatenate([pair[side] for pair in whole]) for side in (0, 1))
    return 1e3 * float(np.percentile(np.abs(told - true), 99)), float((told < true / 10).mean())
