"""A run's figures in the order in which a reader asks, each with the sentence that says how to read it."""

from __future__ import annotations

from dashboards.run import Run
from dashboards.story.conditions import conditions
from dashboards.story.cost import cost
from dashboards.story.latency import LIMITS, latency
from dashboards.story.load import load
from dashboards.story.plate import Chapter, Plate
from dashboards.story.speed import speed
from dashboards.story.steps import steps
from dashboards.story.trees import trees
from dashboards.story.width import width

__all__ = ["LIMITS", "Chapter", "Plate", "chapters"]


def chapters(run: Run, limit: str = "tpot") -> list[Chapter]:
    """Chapters that have something to show. `limit`: of LIMITS, what goodput is counted by."""
    told = [
        Chapter("speed", "Which arm is faster?", speed(run)),
        Chapter("width", "How wide should the tree be?", width(run)),
        Chapter("steps", "Where does a step’s time go?", steps(run)),
        Chapter("trees", "What was drafted, and what was taken?", trees(run)),
        Chapter("latency", "What does a user wait for?", latency(run, limit)),
        Chapter("load", "What changes under load?", load(run)),
        Chapter("cost", "What does it cost?", cost(run)),
        Chapter("conditions", "How was it measured?", conditions(run)),
    ]
    return [chapter for chapter in told if chapter.plates]
