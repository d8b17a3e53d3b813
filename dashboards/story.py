"""The report's figures in the order in which a reader asks, each with the sentence that says how to read it."""

from __future__ import annotations

from dataclasses import dataclass

import plotly.graph_objects as go

from dashboards import figures
from dashboards.explain import decided_point, judged, winner
from dashboards.run import Run
from dashboards.text import percent, ratio
from orchestrator.metrics import by_task, measure
from orchestrator.records import ArmSummary, Decision

_LATENCIES = {"ttft": "Time to first token", "tpot": "Time per output token"}


@dataclass(frozen=True)
class Plate:
    """A figure on the page. `wide` ones take the full width."""

    key: str
    title: str
    caption: str
    figure: go.Figure
    wide: bool = False


@dataclass(frozen=True)
class Chapter:
    """A question and the figures that answer it."""

    key: str
    title: str
    plates: list[Plate]


def chapters(run: Run) -> list[Chapter]:
    """Chapters that have something to show."""
    told = [
        Chapter("speed", "Which arm is faster?", _speed(run)),
        Chapter("width", "How wide should the tree be?", _width(run)),
        Chapter("steps", "Where does a step’s time go?", _steps(run)),
        Chapter("latency", "What does a user wait for?", _latency(run)),
        Chapter("load", "What changes under load?", _load(run)),
        Chapter("conditions", "How was it measured?", _conditions(run)),
    ]
    return [chapter for chapter in told if chapter.plates]


def point_summaries(decision: Decision) -> list[ArmSummary]:
    """The summaries at the decision's concurrency."""
    return [summary for summary in decision.summaries if summary.concurrency == decision.concurrency]


def _speed(run: Run) -> list[Plate]:
    decision = run.decision
    point = decided_point(decision) if decision else None
    if decision is None or point is None or not point.comparisons:
        return []
    forest = figures.speedup_forest(point.comparisons, run.styles, decision.margin, winner(decision))
    caption = (
        f"Each mark is the ratio of {decision.baseline}’s decode time to the arm’s on the same held-out prompts, "
        f"with its {percent(decision.confidence)} interval: a winner lies right of the dotted line at "
        f"{ratio(1 + decision.margin)} with all of it."
    )
    plates = [Plate("forest", f"Speed-up against {decision.baseline}", caption, forest)]
    measured = measure(run.requests[run.requests["concurrency"] == decision.concurrency])
    found = judged(decision)
    if found:
        contender = found.arm
        scatter = figures.paired_scatter(measured, run.styles, contender, decision.baseline)
        caption = (
            f"Each mark is one prompt run by both arms; below the solid line {contender} was faster, "
            "below the dotted one at least twice as fast."
        )
        plates.append(Plate("pairs", f"{contender}, prompt by prompt", caption, scatter))
    return plates


def _width(run: Run) -> list[Plate]:
    decision = run.decision
    summaries = point_summaries(decision) if decision else []
    if decision is None or not any(summary.budget is not None for summary in summaries):
        return []
    speed = figures.throughput_by_budget(summaries, run.styles, winner(decision))
    accepted = figures.acceptance_by_budget(summaries, run.styles, winner(decision))
    level = f"{percent(decision.confidence)} interval"
    return [
        Plate(
            "throughput",
            "Output speed by tree budget",
            f"The line follows the trees, dashed and solid levels are arms without a tree, bands are the {level}: "
            "the best budget is where the line is highest.",
            speed,
        ),
        Plate(
            "acceptance",
            "Acceptance length by tree budget",
            f"Tokens that one verify step gives out, the bonus token counted, with the {level}: it pays only while "
            "it rises faster than the time of a step.",
            accepted,
        ),
    ]


def _steps(run: Run) -> list[Plate]:
    summaries = point_summaries(run.decision) if run.decision else []
    plates = []
    if any(summary.step_ms for summary in summaries):
        caption = "Mean milliseconds of one decode step; the number at the end of a bar is the whole step."
        stack = figures.step_stack(summaries, run.styles)
        plates.append(Plate("stack", "Time of a decode step by stage", caption, stack, wide=True))
    if any(summary.acceptance_by_depth for summary in summaries):
        caption = "How often a step accepts at least k draft tokens: the higher a line stays, the better the draft."
        depth = figures.acceptance_by_depth(summaries, run.styles)
        plates.append(Plate("depth", "Acceptance by depth", caption, depth))
    tasks = by_task(run.requests)
    if run.decision:
        tasks = tasks[tasks["concurrency"] == run.decision.concurrency]
        speculative = [s.arm for s in summaries if s.acceptance_by_depth]
        tasks = tasks[tasks["arm"].isin(speculative)]
        if not tasks.empty:
            caption = (
                "Tokens a verify step gives out by kind of prompt, the bonus token counted; stronger colour is more."
            )
            heat = figures.acceptance_by_task(tasks, run.styles)
            plates.append(Plate("tasks", "Acceptance length by task", caption, heat))
    return plates


def _latency(run: Run) -> list[Plate]:
    decision = run.decision
    plates = []
    summaries = point_summaries(decision) if decision else []
    for key, title in _LATENCIES.items():
        if summaries:
            caption = "Filled marks are the median, open marks the 90th percentile."
            percentiles = figures.latency_percentiles(summaries, run.styles, key)
            plates.append(Plate(f"{key}-percentiles", title, caption, percentiles))
    if run.requests.empty:
        return plates
    point = decision.concurrency if decision else int(run.requests["concurrency"].min())
    measured = measure(run.requests[run.requests["concurrency"] == point])
    for column, title in _LATENCIES.items():
        if measured[column].notna().any():
            caption = f"Share of requests within a time, at {point} at once; a line further left is a faster arm."
            plates.append(
                Plate(column, f"{title}, all requests", caption, figures.latency_cdf(measured, run.styles, column))
            )
    return plates


def _load(run: Run) -> list[Plate]:
    summaries = run.decision.summaries if run.decision else []
    if len({summary.concurrency for summary in summaries}) < 2:
        return []
    caption = "All requests together; where lines cross, another arm becomes the better choice."
    figure = figures.throughput_by_concurrency(summaries, run.styles)
    return [Plate("concurrency", "Output speed by concurrency", caption, figure, wide=True)]


def _conditions(run: Run) -> list[Plate]:
    plates = []
    if run.trials:
        caption = "A bar is a trial, labelled by its arm; a block runs its arms in random order. Hatched: not counted."
        timeline = figures.slot_timeline(run.trials, run.styles)
        plates.append(Plate("timeline", "What ran where, and when", caption, timeline, wide=True))
    if not run.telemetry.empty:
        caption = "Samples during the trials above, in the colour of the arm that ran; drifts and neighbours show here."
        strip = figures.telemetry_strip(run.telemetry, run.styles, figures.run_minutes(run.trials))
        plates.append(Plate("telemetry", "The machine meanwhile", caption, strip, wide=True))
    return plates
