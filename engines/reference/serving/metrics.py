"""Prometheus text of this server: its own requests, and the engine's counters as of now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from engines.reference.decoding.request import SpecStats, StageTimes

_PREFIX = "orchestrate_reference"
_STAGES = ("draft", "build", "verify", "commit", "host", "prefill")


@dataclass(frozen=True)
class Snapshot:
    """The engine's cumulative counters, taken between two steps."""

    stats: SpecStats
    stages: StageTimes


class Metrics:
    """All metrics in a registry of their own."""

    def __init__(self) -> None:
        self._collectors = CollectorRegistry()
        self._engine = _EngineCollector()
        self._collectors.register(self._engine)
        self.requests = Counter(f"{_PREFIX}_requests", "Requests by outcome", ["outcome"], registry=self._collectors)
        self.prompt_tokens = Counter(f"{_PREFIX}_prompt_tokens", "Prompt tokens taken in", registry=self._collectors)
        self.output_tokens = Counter(f"{_PREFIX}_output_tokens", "Tokens sent to clients", registry=self._collectors)
        self.running = Gauge(f"{_PREFIX}_requests_in_flight", "Requests running or waiting", registry=self._collectors)

    def text(self, snapshot: Snapshot | None, in_flight: int) -> bytes:
        """The exposition; without the engine's part while there is no engine."""
        self._engine.snapshot = snapshot
        self.running.set(in_flight)
        return generate_latest(self._collectors)


class _EngineCollector(Collector):
    snapshot: Snapshot | None = None

    def collect(self) -> Iterator[Metric]:
        if self.snapshot is None:
            return
        stats, stages = self.snapshot.stats, self.snapshot.stages
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(f"{_PREFIX}_{name}", text, value=getattr(stats, name))
        depths = CounterMetricFamily(f"{_PREFIX}_accepted_at_depth", "Steps that accepted deeper", labels=["depth"])
        for depth, steps in enumerate(stats.accepted_by_depth):
            depths.add_metric([str(depth)], steps)
        yield depths
        seconds = CounterMetricFamily(f"{_PREFIX}_stage_seconds", "Time in each stage of the steps", labels=["stage"])
        for stage in _STAGES:
            seconds.add_metric([stage], getattr(stages, stage))
        yield seconds


_COUNTERS = {
    "verify_steps": "Verify steps of all requests",
    "drafted": "Draft tokens verified",
    "accepted": "Draft tokens accepted",
    "emitted": "Tokens given out by verify steps",
}
