"""Acceptance by kind of prompt."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go

from dashboards.figures.canvas import canvas, hover
from dashboards.text import count, percent, plain, tokens
from dashboards.theme import HEAT, TEXT, Styles
from orchestrator.outputs import PositionCell

_ROW_PX = 36


def acceptance_by_task(acceptance: pd.DataFrame, styles: Styles) -> go.Figure:
    """A heat map of acceptance length: a row an arm, a column a task. `acceptance` has columns arm, task,
    acceptance_length and requests."""
    arms = [name for name in styles if name in set(acceptance["arm"])]
    tasks = sorted(acceptance["task"].unique())
    cells = {(row["arm"], row["task"]): row for row in acceptance.to_dict("records")}
    rows = [[cells.get((arm, task)) for task in tasks] for arm in arms]
    figure = canvas(90 + _ROW_PX * max(len(arms), 1), styles)
    figure.add_heatmap(
        x=[plain(task) for task in tasks],
        y=[styles[arm].label for arm in arms],
        z=[[cell["acceptance_length"] if cell else None for cell in row] for row in rows],
        text=[[tokens(cell["acceptance_length"]) if cell else "" for cell in row] for row in rows],
        texttemplate="%{text}",
        textfont={"color": TEXT},
        hovertext=[
            [
                hover(
                    styles[cell["arm"]].label,
                    f"{tokens(cell['acceptance_length'])} tokens a step on {plain(cell['task'])}",
                    f"n = {cell['requests']:,} requests",
                )
                if cell
                else ""
                for cell in row
            ]
            for row in rows
        ],
        hoverinfo="text",
        colorscale=[[0, HEAT[0]], [1, HEAT[1]]],
        showscale=False,
        xgap=2,
        ygap=2,
    )
    figure.update_xaxes(showgrid=False, side="top", tickfont={"color": TEXT})
    figure.update_yaxes(showgrid=False, autorange="reversed", tickfont={"color": TEXT, "size": 12})
    return figure


def acceptance_by_task_and_depth(depths: pd.DataFrame, styles: Styles, arm: str) -> go.Figure:
    """A heat map of one arm: the share of verify steps that accept at least k draft tokens, a row a task, a column a
    depth. `depths` has columns arm, task, depth and share, of one concurrency."""
    own = depths[depths["arm"] == arm]
    tasks, deepest = sorted(own["task"].unique()), int(own["depth"].max()) if len(own) else 0
    cells = {(row["task"], row["depth"]): float(row["share"]) for row in own.to_dict("records")}
    rows = [[cells.get((task, depth)) for depth in range(1, deepest + 1)] for task in tasks]
    label = styles[arm].label if arm in styles else plain(arm)
    figure = canvas(106 + _ROW_PX * max(len(tasks), 1), styles)
    figure.add_heatmap(
        x=list(range(1, deepest + 1)),
        y=[plain(task) for task in tasks],
        z=rows,
        hovertext=[
            [
                hover(label, f"{percent(share, 1)} of steps accept {depth} or more draft tokens", f"task {plain(task)}")
                if share is not None
                else ""
                for depth, share in enumerate(row, start=1)
            ]
            for task, row in zip(tasks, rows, strict=True)
        ],
        hoverinfo="text",
        text=[["" if share is None or deepest > 16 else f"{100 * share:.0f}" for share in row] for row in rows],
        texttemplate="%{text}",
        textfont={"color": TEXT},
        colorscale=[[0, HEAT[0]], [1, HEAT[1]]],
        zmin=0,
        zmax=1,
        showscale=False,
        xgap=2,
        ygap=2,
    )
    figure.update_xaxes(title_text="Depth k, draft tokens; numbers: % of steps", showgrid=False, dtick=1)
    figure.update_yaxes(showgrid=False, autorange="reversed", tickfont={"color": TEXT, "size": 12})
    figure.update_layout(margin_t=8)
    return figure


def acceptance_by_position(cells: Sequence[PositionCell], styles: Styles, arm: str) -> go.Figure:
    """A heat map of one arm: acceptance length by kind of prompt and by how long the answer was already. Cells of one
    concurrency."""
    own = {(cell.task, cell.start): cell for cell in cells if cell.arm == arm}
    tasks, starts = sorted({task for task, _ in own}), sorted({start for _, start in own})
    label = styles[arm].label if arm in styles else plain(arm)
    figure = canvas(106 + _ROW_PX * max(len(tasks), 1), styles)
    rows = [[own.get((task, start)) for start in starts] for task in tasks]
    ends = {cell.start: cell.end for cell in own.values()}
    figure.add_heatmap(
        x=[f"{start}–{ends[start]}" if ends[start] is not None else f"from {start}" for start in starts],
        y=[plain(task) for task in tasks],
        z=[[cell.acceptance_length if cell else None for cell in row] for row in rows],
        text=[[tokens(cell.acceptance_length) if cell else "" for cell in row] for row in rows],
        texttemplate="%{text}",
        textfont={"color": TEXT},
        hovertext=[[_cell(cell, label) if cell else "" for cell in row] for row in rows],
        hoverinfo="text",
        colorscale=[[0, HEAT[0]], [1, HEAT[1]]],
        showscale=False,
        xgap=2,
        ygap=2,
    )
    figure.update_xaxes(title_text="Tokens of the answer so far", showgrid=False, type="category")
    figure.update_yaxes(showgrid=False, autorange="reversed", tickfont={"color": TEXT, "size": 12})
    figure.update_layout(margin_t=8)
    return figure


def _cell(cell: PositionCell, label: str) -> str:
    shares = ", ".join(percent(share) for share in cell.by_depth[:4])
    return hover(
        label,
        f"{tokens(cell.acceptance_length)} tokens a step on {plain(cell.task)}",
        f"accepts at depth 1, 2, …: {shares or 'none'}",
        f"n = {count(cell.steps, 'step')}",
    )
