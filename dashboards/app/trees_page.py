"""What was drafted in a step, and what the target took of it."""

from __future__ import annotations

from dash import dcc, html
from dash.development.base_component import Component

from dashboards import text
from dashboards.app.address import Query, number, run_address, trees_address
from dashboards.app.choices import choices, select
from dashboards.app.parts import attributes, section
from dashboards.app.plots import plates
from dashboards.run import Run
from dashboards.story.trees import tree_plate
from orchestrator.records import DraftTrees


def trees_page(run: Run, query: Query) -> list[Component]:
    """The page's content. Of the query: `arm` and `step`, from 1."""
    back = html.Nav(dcc.Link(f"← {run.name}", href=run_address(run.name)), **attributes(aria_label="Up"))
    arm = query.get("arm", "")
    if arm not in run.trees:
        arm = next((name for name in run.styles if name in run.trees), "")
    if not arm:
        return [back, html.H1("No draft trees", className="plain"), html.P(_NONE)]
    trees = run.trees[arm]
    names = {name: name for name in run.styles if name in run.trees}
    fields = [select("arm", "Arm", names, arm, "")]
    if trees.steps:
        chosen = min(max(number(query.get("step", "")), 1), len(trees.steps))
        steps = {str(n): f"{n}: {_taken(trees, n)}" for n in range(1, len(trees.steps) + 1)}
        fields.append(select("step", "Step", steps, str(chosen), ""))
    parts: list[Component | None] = [
        html.P(_note(trees), className="note"),
        choices(trees_address(run.name), fields, query),
        plates([tree_plate(run, arm, chosen)]) if trees.steps else html.P(f"Not recorded: {trees.problem or _SHORT}."),
    ]
    return [back, html.H1("Draft trees", className="plain"), section("tree", arm, parts)]


_NONE = "This run recorded none: its engines do not tell, nothing drafts, or it was measured by an earlier version."
_SHORT = "the answer ended with its first token"


def _note(trees: DraftTrees) -> str:
    return (
        f"The first {text.count(len(trees.steps), 'verify step')} of prompt {trees.prompt_id}, decoded greedily once "
        "more after the load; counted in no figure of the run."
    )


def _taken(trees: DraftTrees, number: int) -> str:
    step = trees.steps[number - 1]
    return f"{len(step.accepted) - 1} of {len(step.nodes) - 1} accepted"
