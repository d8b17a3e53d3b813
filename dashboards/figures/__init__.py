"""Figures: pure functions from stored records and frames to Plotly figures. They sort and format, no more."""

from dashboards.figures.budget import acceptance_by_budget, step_time_by_budget, throughput_by_budget
from dashboards.figures.costs import JOULES, USD, price_bars, priced
from dashboards.figures.crossings import payoff_ranges
from dashboards.figures.curve import verify_curve
from dashboards.figures.divergence import divergence_gaps
from dashboards.figures.goodput import goodput_against_limit
from dashboards.figures.latency import latency_cdf, latency_percentiles, paired_scatter
from dashboards.figures.load import throughput_by_concurrency
from dashboards.figures.pareto import pareto
from dashboards.figures.slots import run_minutes, slot_timeline, telemetry_strip
from dashboards.figures.speedup import speedup_forest
from dashboards.figures.steps import acceptance_by_depth, step_stack
from dashboards.figures.tasks import acceptance_by_position, acceptance_by_task, acceptance_by_task_and_depth
from dashboards.figures.trees import draft_tree

__all__ = [
    "JOULES",
    "USD",
    "acceptance_by_budget",
    "acceptance_by_depth",
    "acceptance_by_position",
    "acceptance_by_task",
    "acceptance_by_task_and_depth",
    "divergence_gaps",
    "draft_tree",
    "goodput_against_limit",
    "latency_cdf",
    "latency_percentiles",
    "paired_scatter",
    "pareto",
    "payoff_ranges",
    "price_bars",
    "priced",
    "run_minutes",
    "slot_timeline",
    "speedup_forest",
    "step_stack",
    "step_time_by_budget",
    "telemetry_strip",
    "throughput_by_budget",
    "throughput_by_concurrency",
    "verify_curve",
]
