"""Where texts depart from plain decoding's, and how close the call was."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from dashboards.figures.canvas import canvas, hover, y_title
from dashboards.text import count, plain
from dashboards.theme import MUTED, Styles


def divergence_gaps(divergences: pd.DataFrame, styles: Styles, near_tie_gap: float) -> go.Figure:
    """The target's logit gap at each first divergence against its place in the output; filled symbols are violations.
    `divergences` holds the rows of equivalence.parquet."""
    figure = canvas(320, styles, narrow={"legend": {"y": -0.32}})
    for name, style in styles.items():
        rows = divergences[divergences["arm"] == name]
        if rows.empty:
            continue
        size = f"n = {count(len(rows), 'divergence')}"
        figure.add_scatter(
            x=rows["position"].tolist(),
            y=rows["gap"].tolist(),
            mode="markers",
            cliponaxis=False,
            marker={
                "color": style.color,
                "size": 9,
                "symbol": [f"{style.symbol}-open" if tie else style.symbol for tie in rows["near_tie"]],
                "line": {"width": 1.5},
            },
            name=style.label,
            hovertext=[
                hover(style.label, f"{plain(row['prompt_id'])}, token {row['position']}, gap {row['gap']:.4g}", size)
                for row in rows.to_dict("records")
            ],
            hoverinfo="text",
        )
    figure.add_hline(y=near_tie_gap, line={"color": MUTED, "width": 1, "dash": "dot"})
    figure.update_xaxes(title_text="Output token of the first divergence", showgrid=False, rangemode="tozero")
    figure.update_yaxes(rangemode="tozero")
    legend = {"orientation": "h", "x": 0, "y": -0.24, "yanchor": "top"}
    figure.update_layout(showlegend=True, legend=legend)
    y_title(figure, f"Logit gap; dotted: largest near-tie of an arm, {near_tie_gap:.3g}")
    return figure
