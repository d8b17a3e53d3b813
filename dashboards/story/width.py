"""How wide should the tree be?"""

from __future__ import annotations

from dashboards import figures
from dashboards.explain import point_summaries, winner
from dashboards.run import Run
from dashboards.servers import automatic
from dashboards.story.plate import Plate
from dashboards.text import percent


def width(run: Run) -> list[Plate]:
    decision = run.decision
    summaries = point_summaries(decision) if decision else []
    if decision is None or not any(summary.budget is not None for summary in summaries):
        return []
    chosen = {trial.arm for trial in run.trials if automatic(trial)}  # what it may choose up to is no budget
    summaries = [s.model_copy(update={"budget": None}) if s.arm in chosen else s for s in summaries]
    cliffs = [c for c in run.outputs.cliffs if c.concurrency == decision.concurrency] if run.outputs else []
    speed = figures.throughput_by_budget(summaries, run.styles, winner(decision), cliffs)
    accepted = figures.acceptance_by_budget(summaries, run.styles, winner(decision), cliffs)
    level = f"{percent(decision.confidence)} interval"
    plates = [
        Plate(
            "throughput",
            "Output speed by tree budget",
            f"The line follows the trees, levels are arms without a tree of one budget, bands are the {level}: "
            "the best budget is where the line is highest.",
            speed,
            wide=True,
        ),
        Plate(
            "acceptance",
            "Acceptance length by tree budget",
            f"Tokens that one verify step gives out, the bonus token counted, with the {level}: it pays only while "
            "it rises faster than the time of a step.",
            accepted,
            wide=True,
        ),
    ]
    if any(summary.step_ms for summary in summaries):
        figure = figures.step_time_by_budget(summaries, run.styles, winner(decision), cliffs)
        caption = "What a decode step costs, its stages together; the store holds no interval of it."
        plates.append(Plate("step-time", "Step time by tree budget", caption, figure, wide=True))
    return plates
