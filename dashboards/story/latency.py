"""What does a user wait for?"""

from __future__ import annotations

from dashboards import figures
from dashboards.explain import point_summaries
from dashboards.run import Run
from dashboards.story.plate import Plate
from orchestrator.metrics import measure

LIMITS = {"tpot": "Time per output token", "ttft": "Time to first token", "e2e": "Whole request"}
_LATENCIES = ("ttft", "tpot")


def latency(run: Run, limit: str) -> list[Plate]:
    decision = run.decision
    plates = []
    summaries = point_summaries(decision) if decision else []
    for key in _LATENCIES:
        if summaries:
            caption = "Filled marks are the median, open marks the 90th percentile."
            percentiles = figures.latency_percentiles(summaries, run.styles, key)
            plates.append(Plate(f"{key}-percentiles", LIMITS[key], caption, percentiles))
    if run.requests.empty:
        return plates
    point = decision.concurrency if decision else int(run.requests["concurrency"].min())
    measured = measure(run.requests[run.requests["concurrency"] == point])
    for column in _LATENCIES:
        if measured[column].notna().any():
            caption = f"Share of requests within a time, at {point} at once; a line further left is a faster arm."
            figure = figures.latency_cdf(measured, run.styles, column)
            plates.append(Plate(column, f"{LIMITS[column]}, all requests", caption, figure))
    return plates + _goodput(run, point, limit)


def _goodput(run: Run, point: int, limit: str) -> list[Plate]:
    curves = run.goodput
    own = curves[(curves["concurrency"] == point) & (curves["limit"] == limit)]
    if own.empty:
        return []
    caption = (
        f"Requests a second that finished within the limit at {point} at once, by this one limit alone. Drag the line, "
        "or move the slider, to your own service level."
    )
    asked = getattr(run.spec.slo, f"{limit}_ms") if run.spec else None
    figure = figures.goodput_against_limit(own, run.styles, limit, asked)
    return [Plate("goodput", f"Goodput against a limit: {LIMITS[limit].lower()}", caption, figure, wide=True)]
