"""The draft tree of one verify step."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from dashboards.figures.canvas import Slider, add_slider, canvas, hover
from dashboards.text import count, elide, percent, plain
from dashboards.theme import ACCENT, MUTED, RULE, SURFACE, TEXT, Styles
from orchestrator.records import TreeStep

_LEAF_PX, _LEAST_PX = 19, 150
_LARGEST, _SMALLEST = 22, 6


def draft_tree(step: TreeStep, styles: Styles, *, budget_slider: bool = True) -> go.Figure:
    """Nodes from the root on the left to the deepest on the right, larger where the drafter thought them likelier, the
    accepted path in the colour of a winner with the target's bonus token at its end. The slider, for trees that are
    best first, takes away what a smaller budget would not have held."""
    heights = _heights(step)
    drafted = range(1, len(step.nodes))
    leaves = max(heights) + 1
    figure = canvas(max(_LEAST_PX, round(_LEAF_PX * leaves)) + 60, styles)
    _edges(figure, step, heights, drafted, RULE)
    _nodes(figure, step, heights, drafted, RULE)
    _edges(figure, step, heights, drafted, MUTED, "prunable")
    _nodes(figure, step, heights, [node for node in drafted if node not in step.accepted], MUTED, "prunable")
    _edges(figure, step, heights, step.accepted[1:], ACCENT, "prunable", width=3)
    _path(figure, step, heights)
    _bonus(figure, step, heights)
    deepest = max(node.depth for node in step.nodes)
    figure.update_xaxes(title_text="Depth, draft tokens", range=[-0.35, deepest + 1.9], showgrid=False)
    figure.update_xaxes(tickvals=list(range(deepest + 1)))
    figure.update_yaxes(visible=False, range=[leaves - 0.3, -1.5])
    figure.update_layout(margin_t=8, margin_l=16)
    if budget_slider:
        most = len(step.nodes) - 1
        says = tuple(kept(step, budget) for budget in range(most + 1))
        add_slider(figure, Slider("budget", "Budget, nodes", most, 1, most, says))
    return figure


def kept(step: TreeStep, budget: int) -> str:
    """What a budget of so many nodes would have held of the accepted path."""
    path = step.accepted[1:]
    within = [node for node in path if node <= budget]
    accepted = count(len(path), "accepted draft token")
    return (
        f"Of {len(step.nodes) - 1} nodes, the best {budget}: {len(within)} of {accepted} in the tree, so "
        f"{count(len(within) + 1, 'token')} from this step."
    )


def _heights(step: TreeStep) -> list[float]:
    """Each node's row, the bonus token's last: leaves one under the other, siblings best first and the bonus before
    them, a parent at the height of its first child."""
    children: list[list[int]] = [[] for _ in range(len(step.nodes) + 1)]
    for index, node in enumerate(step.nodes[1:], 1):
        children[node.parent].append(index)
    children[step.accepted[-1]].insert(0, len(step.nodes))
    order, waiting = list[int](), [0]
    while waiting:
        order.append(waiting.pop())
        waiting += reversed(children[order[-1]])
    heights, rows = [0.0] * len(children), 0
    for index in order:
        if not children[index]:
            heights[index], rows = rows, rows + 1
    for index in reversed(order):
        if children[index]:
            heights[index] = heights[children[index][0]]
    return heights


def _edges(
    figure: go.Figure,
    step: TreeStep,
    heights: Sequence[float],
    shown: Sequence[int],
    color: str,
    meta: str = "",
    width: int = 1,
) -> None:
    """Lines to the nodes `shown` from their parents."""
    x: list[float | None] = []
    y: list[float | None] = []
    for index in shown:
        node = step.nodes[index]
        x += [node.depth - 1, node.depth - 0.5, node.depth, None]
        y += [heights[node.parent], heights[index], heights[index], None]
    owners = [index for index in shown for _ in range(4)]
    line = {"color": color, "width": width}
    figure.add_scatter(x=x, y=y, mode="lines", line=line, hoverinfo="skip", customdata=owners, meta=meta, name="edges")


def _nodes(
    figure: go.Figure, step: TreeStep, heights: Sequence[float], shown: Sequence[int], color: str, meta: str = ""
) -> None:
    """Marks; with their tokens and what they are where `meta` says that they can be taken away, else ghosts."""
    nodes = [step.nodes[index] for index in shown]
    figure.add_scatter(
        x=[node.depth for node in nodes],
        y=[heights[index] for index in shown],
        mode="markers+text" if meta else "markers",
        marker={
            "color": SURFACE if meta else RULE,
            "size": [_size(step, index) for index in shown],
            "line": {"color": color, "width": 1.5},
        },
        text=[_token(node.text) for node in nodes] if meta else None,
        textposition="top right",
        textfont={"color": MUTED, "size": 11},
        hovertext=[_hover(step, index) for index in shown] if meta else None,
        hoverinfo="text" if meta else "skip",
        customdata=list(shown),
        meta=meta,
        name="drafted",
    )


def _path(figure: go.Figure, step: TreeStep, heights: Sequence[float]) -> None:
    nodes = [step.nodes[index] for index in step.accepted]
    sizes = [_size(step, index) for index in step.accepted]
    figure.add_scatter(
        x=[node.depth for node in nodes],
        y=[heights[index] for index in step.accepted],
        mode="markers+text",
        marker={"color": ACCENT, "size": sizes, "opacity": 1, "line": {"width": 0}},
        text=[f"<b>{_token(node.text)}</b>" for node in nodes],
        textposition="top right",
        textfont={"color": TEXT, "size": 12},
        hovertext=[_hover(step, index) for index in step.accepted],
        hoverinfo="text",
        customdata=list(step.accepted),
        meta="prunable",
        name="accepted",
    )


def _bonus(figure: go.Figure, step: TreeStep, heights: Sequence[float]) -> None:
    last = step.accepted[-1]
    depth, height = step.nodes[last].depth, heights[-1]
    figure.add_scatter(
        x=[depth, depth + 1],
        y=[height, height],
        mode="lines+markers+text",
        line={"color": ACCENT, "width": 2, "dash": "dot"},
        marker={"color": ACCENT, "size": [0, 11], "symbol": "star", "opacity": 1},
        text=["", f"<b>{_token(step.bonus_text)}</b>"],
        textposition="top right",
        textfont={"color": ACCENT, "size": 12},
        hovertext=["", hover("bonus token", f"“{plain(step.bonus_text)}”, the target’s own")],
        hoverinfo="text",
        customdata=[last, last],
        meta="prunable",
        name="bonus",
    )


def _size(step: TreeStep, index: int) -> float:
    """A mark's width: its area follows the probability of the whole path."""
    return max(_SMALLEST, _LARGEST * math.sqrt(math.exp(step.nodes[index].log_prob)))


def _token(text: str) -> str:
    """A token by itself, its spaces and line breaks visible."""
    return plain(elide(text.replace(" ", "␣").replace("\n", "↵").replace("\t", "⇥"), 12))


def _hover(step: TreeStep, index: int) -> str:
    node = step.nodes[index]
    if index == 0:
        return hover("root", f"“{plain(node.text)}”, the token emitted last")
    own = math.exp(node.log_prob - step.nodes[node.parent].log_prob)
    return hover(
        f"node {index}",
        f"“{plain(node.text)}” (token {node.token_id})",
        f"{percent(own, 1)} here, {percent(math.exp(node.log_prob), 2)} for the path",
        "accepted" if index in step.accepted else "not accepted",
    )
