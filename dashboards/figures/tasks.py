"""Acceptance by kind of prompt."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from dashboards.figures.canvas import canvas, hover
from dashboards.text import plain, tokens
from dashboards.theme import HEAT, TEXT, Styles

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
