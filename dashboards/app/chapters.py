"""A run's figures for the page: the report's, at the concurrency that the reader chose, and those the index feeds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pandas as pd

from dashboards import figures
from dashboards.explain import judged, winner
from dashboards.run import Run
from dashboards.story import Chapter, Plate, chapters, point_summaries
from orchestrator.index import Index
from orchestrator.records import Decision

LIMITS = {"tpot": "Time per output token", "ttft": "Time to first token", "e2e": "Whole request"}


@dataclass(frozen=True)
class Goodput:
    """The goodput figure: where its limit stands at first, and how far it goes, in ms."""

    plate: Plate
    limit: float
    most: float


def at_concurrency(run: Run, concurrency: int) -> Run:
    """The run as its figures show it at another of its workload points."""
    decision = run.decision
    point = next((p for p in decision.points if p.concurrency == concurrency), None) if decision else None
    if decision is None or point is None:
        return run
    shown = {"concurrency": concurrency, "verdict": point.verdict, "arm": point.arm}
    return replace(run, decision=decision.model_copy(update=shown))


def page_chapters(run: Run, index: Index) -> list[Chapter]:
    """The report's chapters with the figures that only the page has."""
    told = []
    for chapter in chapters(run):
        plates = list(chapter.plates)
        if run.decision and chapter.key == "width":
            plates = _width(run, run.decision, plates)
        if run.decision and chapter.key == "steps":
            plates += _depths(run.decision, run, index)
        if run.decision and chapter.key == "load":
            plates = _load(run.decision, run, plates)
        told.append(replace(chapter, plates=plates))
    return told


def goodput(run: Run, index: Index, limit: str) -> Goodput | None:
    """Goodput against one limit at the run's concurrency; None where nothing was measured."""
    curves = index.goodput
    if run.decision is None or curves.empty:
        return None
    own = curves[(curves["concurrency"] == run.decision.concurrency) & (curves["limit"] == limit)]
    if own.empty:
        return None
    caption = (
        f"Requests a second that finished within the limit at {run.decision.concurrency} at once, by this one limit "
        "alone. Drag the line, or move the slider, to your own service level."
    )
    figure = figures.goodput_against_limit(own, run.styles, limit)
    asked = getattr(run.spec.slo, f"{limit}_ms") if run.spec else None
    most = max(float(own["ms"].max()), asked or 0.0)
    title = f"Goodput against a limit: {LIMITS[limit].lower()}"
    return Goodput(Plate("goodput", title, caption, figure, wide=True), float(asked or most / 2), most)


def _width(run: Run, decision: Decision, plates: list[Plate]) -> list[Plate]:
    """Speed, acceptance length and step time under each other, on one scale of budgets."""
    stacked = [replace(plate, wide=True) for plate in plates]
    summaries = point_summaries(decision)
    if any(summary.step_ms for summary in summaries):
        figure = figures.step_time_by_budget(summaries, run.styles, winner(decision))
        caption = "What a decode step costs, its stages together; the store holds no interval of it."
        stacked.append(Plate("step-time", "Step time by tree budget", caption, figure, wide=True))
    return stacked


def _depths(decision: Decision, run: Run, index: Index) -> list[Plate]:
    found = judged(decision)
    arm = found.arm if found else None
    depths = index.depths
    if arm is None or depths.empty:
        return []
    own: pd.DataFrame = depths[(depths["concurrency"] == decision.concurrency) & (depths["arm"] == arm)]
    if own.empty:
        return []
    figure = figures.acceptance_by_task_and_depth(own, run.styles, arm)
    caption = f"How often a step of {arm} accepts at least k draft tokens, by kind of prompt."
    return [Plate("depth-tasks", "Acceptance by depth and task", caption, figure)]


def _load(decision: Decision, run: Run, plates: list[Plate]) -> list[Plate]:
    speed = figures.throughput_by_concurrency(decision.summaries, run.styles, decision.baseline)
    caption = (
        f"All requests together. A ring marks where an arm’s line crosses {decision.baseline}’s: from there on the "
        "other one is the better choice."
    )
    shown = [replace(plates[0], caption=caption, figure=speed), *plates[1:]]
    trade = figures.pareto(decision.summaries, run.styles)
    caption = (
        "Further right is quicker for one user, further up serves more of them; the dotted steps are the frontier."
    )
    return [*shown, Plate("pareto", "One user’s speed against everybody’s", caption, trade, wide=True)]
