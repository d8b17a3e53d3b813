"""Figures: pure functions from stored records and frames to Plotly figures. They sort and format, no more."""

from dashboards.figures.budget import acceptance_by_budget, throughput_by_budget
from dashboards.figures.divergence import divergence_gaps
from dashboards.figures.latency import latency_cdf, latency_percentiles, paired_scatter
from dashboards.figures.load import throughput_by_concurrency
from dashboards.figures.slots import run_minutes, slot_timeline, telemetry_strip
from dashboards.figures.speedup import speedup_forest
from dashboards.figures.steps import acceptance_by_depth, step_stack
from dashboards.figures.tasks import acceptance_by_task

__all__ = [
    "acceptance_by_budget",
    "acceptance_by_depth",
    "acceptance_by_task",
    "divergence_gaps",
    "latency_cdf",
    "latency_percentiles",
    "paired_scatter",
    "run_minutes",
    "slot_timeline",
    "speedup_forest",
    "step_stack",
    "telemetry_strip",
    "throughput_by_budget",
    "throughput_by_concurrency",
]
