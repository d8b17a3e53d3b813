"""What was drafted, and what was taken of it?"""

from __future__ import annotations

from dashboards import figures
from dashboards.explain import judged
from dashboards.run import Run
from dashboards.story.plate import Plate
from dashboards.text import count


def trees(run: Run) -> list[Plate]:
    """A step of the arm that the verdict rests on, or of any: the one that accepted most."""
    found = judged(run.decision) if run.decision else None
    arm = (
        found.arm if found and found.arm in run.trees else next((name for name in run.styles if name in run.trees), "")
    )
    steps = run.trees[arm].steps if arm else []
    if not steps:
        return []
    best = max(range(len(steps)), key=lambda index: len(steps[index].accepted))
    return [tree_plate(run, arm, best + 1)]


def tree_plate(run: Run, arm: str, number: int) -> Plate:
    """A recorded step of an arm; steps count from 1."""
    step = run.trees[arm].steps[number - 1]
    trial = next(trial for trial in run.trials if trial.arm == arm)
    chain = trial.identity.get("chain") is True
    taken = len(step.accepted) - 1
    caption = (
        f"Step {number} of prompt {run.trees[arm].prompt_id}, recorded after the load. A larger mark is a likelier "
        f"path; the green one was accepted, {count(taken, 'draft token')} and the star, the target’s own. "
    )
    caption += (
        "This arm forces the drafter’s chain into its tree, so a smaller tree is not a part of this one."
        if chain
        else "Nodes were added best first: the slider shows the tree of a smaller budget."
    )
    figure = figures.draft_tree(step, run.styles, budget_slider=not chain)
    return Plate("tree", f"{arm}: the draft tree of one step", caption, figure, wide=True)
