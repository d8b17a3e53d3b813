"""Requests that come in time, against what in time means."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from dashboards.figures.canvas import Slider, add_slider, canvas, hover, y_title
from dashboards.figures.latency import TITLES
from dashboards.figures.steps import LEGEND_BELOW
from dashboards.theme import Styles


def goodput_against_limit(curves: pd.DataFrame, styles: Styles, limit: str, asked: float | None = None) -> go.Figure:
    """Requests a second within a limit of `limit` (ttft, tpot or e2e), a line an arm, which stays where it is once all
    were in time; the reader moves the limit, which begins at the `asked` ms. `curves` has columns arm, limit, ms and
    rps, of one concurrency, each arm's in ascending order."""
    figure = canvas(430, styles)
    own = curves[curves["limit"] == limit]
    most = max(float(own["ms"].max()), asked or 0.0)
    step = max(round(most / 200, 1), 0.1)
    add_slider(figure, Slider("limit", "Limit, ms", round(most, 1), step, asked or round(most / 2, 1)))
    for name, style in styles.items():
        line = own[own["arm"] == name]
        if line.empty:
            continue
        beyond = [most] if float(line["ms"].iloc[-1]) < most else []
        figure.add_scatter(
            x=[*line["ms"], *beyond],
            y=[*line["rps"], *line["rps"].tail(len(beyond))],
            mode="lines",
            line={"color": style.color, "width": 2, "dash": style.dash},
            name=style.label,
            hovertemplate=hover("%{fullData.name}", "%{y:.3f} requests/s within %{x:.1f} ms<extra></extra>"),
        )
    figure.update_xaxes(title_text=f"Limit: {TITLES[limit]}", rangemode="tozero")
    figure.update_yaxes(rangemode="tozero")
    figure.update_layout(showlegend=True, **LEGEND_BELOW)
    y_title(figure, "Goodput, requests/s")
    return figure
