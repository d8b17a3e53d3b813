import re
from typing import Any

import pytest

from dashboards.figures import draft_tree
from dashboards.figures.trees import kept
from dashboards.run import Run
from dashboards.story.trees import tree_plate, trees
from orchestrator.records import TreeNode, TreeStep
from tests.dashboards.synthetic import HOSTILE

# 0 root; 1 and 3 its children, 2 and 4 the children of 1. Accepted: 0, 1, 4.
PLACES = [(-1, 0, 0.0), (0, 1, -0.1), (1, 2, -0.4), (0, 1, -1.5), (1, 2, -2.0)]
STEP = TreeStep(
    nodes=[TreeNode(token_id=n, text=f"t{n}", parent=p, depth=d, log_prob=s) for n, (p, d, s) in enumerate(PLACES)],
    accepted=[0, 1, 4],
    bonus_id=9,
    bonus_text="b\n",
)


def traces(figure: Any, name: str) -> list[Any]:
    return [trace for trace in figure.data if trace.name == name]


def test_every_node_is_there_once_and_larger_where_it_is_likelier() -> None:
    figure = draft_tree(STEP, {})
    (path,) = traces(figure, "accepted")
    ghosts, others = traces(figure, "drafted")
    assert sorted([*path.customdata, *others.customdata]) == [0, 1, 2, 3, 4]
    assert list(ghosts.customdata) == [1, 2, 3, 4]
    sizes = dict(zip(others.customdata, others.marker.size, strict=True))
    assert sizes[2] > sizes[3]
    assert [re.sub("<.*?>", "", text) for text in path.text] == ["t0", "t1", "t4"]
    assert "t0" in path.hovertext[0]
    assert "15.0 % here, 13.53 % for the path" in path.hovertext[2]


def test_edges_lead_from_parents_to_children() -> None:
    figure = draft_tree(STEP, {})
    _, edges, accepted = traces(figure, "edges")
    assert list(accepted.customdata) == [1] * 4 + [4] * 4
    (path,), (_, others) = traces(figure, "accepted"), traces(figure, "drafted")
    points = [
        *zip(path.customdata, path.x, path.y, strict=True),
        *zip(others.customdata, others.x, others.y, strict=True),
    ]
    places = {node: (x, y) for node, x, y in points}
    assert len(set(places.values())) == 5
    for at in range(0, len(edges.x), 4):
        child = edges.customdata[at]
        parent = STEP.nodes[child].parent
        assert edges.y[at] == places[parent][1]
        assert (edges.x[at + 2], edges.y[at + 2]) == places[child]


@pytest.mark.parametrize(("budget", "says"), [(0, "0 of 2"), (1, "1 of 2"), (3, "1 of 2"), (4, "2 of 2")])
def test_a_smaller_budget_keeps_a_beginning(budget: int, says: str) -> None:
    (accepted,) = re.findall(r"(\d) of 2", says)
    tokens = int(accepted) + 1
    words = f"{says.replace('of 2', 'of 2 accepted draft tokens')} in the tree, so {tokens} token"
    assert words in kept(STEP, budget)
    slider = draft_tree(STEP, {}).layout.meta["slider"]
    assert slider["says"][budget] == kept(STEP, budget)
    assert (slider["most"], slider["value"]) == (4, 4)


def test_a_tree_with_a_forced_chain_has_no_slider() -> None:
    assert "slider" not in draft_tree(STEP, {}, budget_slider=False).layout.meta


def test_the_bonus_hangs_on_the_last_accepted_node() -> None:
    (bonus,) = traces(draft_tree(STEP, {}), "bonus")
    (path,) = traces(draft_tree(STEP, {}), "accepted")
    assert (bonus.x[0], bonus.y[0], bonus.y[1]) == (path.x[-1], path.y[-1], path.y[-1])
    assert bonus.text[1] == "<b>b↵</b>"
    assert list(bonus.customdata) == [4, 4]


def test_the_chapter_shows_the_judged_arms_fullest_step(winner_run: Run) -> None:
    (plate,) = trees(winner_run)
    assert winner_run.decision is not None
    arm = winner_run.decision.arm
    assert arm is not None
    most = max(len(step.accepted) for step in winner_run.trees[arm].steps)
    assert plate.title.startswith(f"{arm}:")
    assert f"accepted, {most - 1} draft token" in plate.caption


def test_tokens_stay_text(winner_run: Run) -> None:
    data = str(tree_plate(winner_run, "ddtree-budget=31", 1).figure.to_json())
    assert HOSTILE[:8] not in data
    assert "&lt;" in data


def test_a_run_without_trees_has_no_chapter(tie_run: Run) -> None:
    assert trees(tie_run) == []
