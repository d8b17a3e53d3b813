"""Where does a step’s time go, and what does it give?"""

from __future__ import annotations

from dashboards import figures
from dashboards.explain import judged, point_summaries
from dashboards.run import Run
from dashboards.story.plate import Plate
from orchestrator.metrics import by_task
from orchestrator.records import Decision


def steps(run: Run) -> list[Plate]:
    """The stages of a step, the verify forward's cost, and what is accepted."""
    if run.decision is None:
        return []
    return [*_stages(run, run.decision), *_curve(run), *_acceptance(run, run.decision), *_of_one(run, run.decision)]


def _stages(run: Run, decision: Decision) -> list[Plate]:
    summaries = point_summaries(decision)
    if not any(summary.step_ms for summary in summaries):
        return []
    caption = "Mean milliseconds of one decode step; the number at the end of a bar is the whole step."
    stack = figures.step_stack(summaries, run.styles)
    return [Plate("stack", "Time of a decode step by stage", caption, stack, wide=True)]


def _curve(run: Run) -> list[Plate]:
    if run.outputs is None or not run.outputs.curve:
        return []
    caption = (
        "What the target takes to verify so many tokens at once, with intervals over trials. A cliff is a step far "
        "steeper than the curve: another kernel or tile size begins there."
    )
    figure = figures.verify_curve(run.outputs.curve, run.outputs.cliffs, run.styles)
    return [Plate("curve", "Time of a verify forward by its width", caption, figure, wide=True)]


def _acceptance(run: Run, decision: Decision) -> list[Plate]:
    summaries, plates = point_summaries(decision), []
    if any(summary.acceptance_by_depth for summary in summaries):
        caption = "How often a step accepts at least k draft tokens: the higher a line stays, the better the draft."
        depth = figures.acceptance_by_depth(summaries, run.styles)
        plates.append(Plate("depth", "Acceptance by depth", caption, depth))
    tasks = by_task(run.requests)
    drafting = [summary.arm for summary in summaries if summary.acceptance_by_depth]
    tasks = tasks[(tasks["concurrency"] == decision.concurrency) & tasks["arm"].isin(drafting)]
    if not tasks.empty:
        caption = "Tokens a verify step gives out by kind of prompt, the bonus token counted; stronger colour is more."
        heat = figures.acceptance_by_task(tasks, run.styles)
        plates.append(Plate("tasks", "Acceptance length by task", caption, heat))
    return plates


def _of_one(run: Run, decision: Decision) -> list[Plate]:
    """Of the arm that the verdict rests on, in more detail."""
    found, at, plates = judged(decision), decision.concurrency, []
    if found is None:
        return []
    own = run.depths[(run.depths["concurrency"] == at) & (run.depths["arm"] == found.arm)]
    if not own.empty:
        figure = figures.acceptance_by_task_and_depth(own, run.styles, found.arm)
        caption = f"How often a step of {found.arm} accepts at least k draft tokens, by kind of prompt."
        plates.append(Plate("depth-tasks", "Acceptance by depth and task", caption, figure))
    cells = [c for c in run.outputs.positions if c.concurrency == at and c.arm == found.arm] if run.outputs else []
    if cells:
        figure = figures.acceptance_by_position(cells, run.styles, found.arm)
        caption = f"Tokens a step of {found.arm} gives out, by kind of prompt and by how far the answer had come."
        plates.append(Plate("position", "Acceptance by position and task", caption, figure))
    return plates
