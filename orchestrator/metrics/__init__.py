"""What one arm did: latencies a request, the steady window of a trial, and the row of the report's table."""

from orchestrator.metrics.requests import measure, within_slo
from orchestrator.metrics.summary import by_task, caveats, summarise
from orchestrator.metrics.window import open_window, steady_window, tokens_within, window_of

__all__ = [
    "by_task",
    "caveats",
    "measure",
    "open_window",
    "steady_window",
    "summarise",
    "tokens_within",
    "window_of",
    "within_slo",
]
