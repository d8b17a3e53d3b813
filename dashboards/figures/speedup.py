"""Speed-ups against the baseline: the figure that the decision is read from."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from dashboards.figures.canvas import canvas, error_bars, hover, log_range
from dashboards.text import bounds, count, plain, ratio
from dashboards.theme import ACCENT, MUTED, RULE, TEXT, ArmStyle, Styles
from orchestrator.records import Comparison

_ROW_PX = 44
_TICKS = (0.1, 0.2, 0.25, 0.33, 0.5, 0.67, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 1.75, 2, 2.5, 3, 4, 5, 6, 8, 10, 15, 20)


def speedup_forest(
    comparisons: Sequence[Comparison], styles: Styles, margin: float, winner: str | None = None
) -> go.Figure:
    """A row an arm, fastest first: the ratio of decode times with its interval, the line of no difference, and the
    margin that a winner's interval has to clear. Comparisons of one concurrency."""
    rows = sorted(comparisons, key=lambda c: c.speedup.estimate)
    figure = canvas(104 + _ROW_PX * max(len(rows), 1), styles, right=24)
    low = min([0.9, *(c.speedup.low for c in rows)]) / 1.06
    high = max([1.2, *(c.speedup.high for c in rows)]) * 1.06
    figure.add_vrect(x0=1, x1=1 + margin, fillcolor=RULE, line_width=0, layer="below")
    figure.add_vline(x=1, line={"color": TEXT, "width": 1})
    figure.add_vline(x=1 + margin, line={"color": MUTED, "width": 1, "dash": "dot"})
    for row in rows:
        _row(figure, row, styles[row.arm], row.arm == winner)
    _sides(figure, margin)
    ticks = _ticks(low, high)
    figure.update_xaxes(type="log", range=log_range(low, high), title_text="Speed-up, ratio of decode times per prompt")
    figure.update_xaxes(tickvals=ticks, ticktext=[f"{tick:g}×" for tick in ticks])
    names = [_row_name(styles[c.arm], c.arm == winner) for c in rows]
    figure.update_yaxes(showgrid=False, tickvals=[styles[c.arm].label for c in rows], ticktext=names)
    figure.update_yaxes(tickfont={"size": 12, "color": TEXT}, range=[-0.6, len(rows) - 0.3])
    return figure


def _ticks(low: float, high: float) -> list[float]:
    """1 and, away from it, ratios far enough apart to be read on a narrow page."""
    gap = math.log(high / low) / 5
    shown = [1.0]
    for side in ([t for t in _TICKS if t > 1], [t for t in reversed(_TICKS) if t < 1]):
        last = 1.0
        for tick in side:
            if low <= tick <= high and abs(math.log(tick / last)) >= gap:
                shown.append(tick)
                last = tick
    return sorted(shown)


def _row(figure: go.Figure, row: Comparison, style: ArmStyle, won: bool) -> None:
    color = ACCENT if won else style.color
    figure.add_scatter(
        x=[row.speedup.estimate],
        y=[style.label],
        error_x=error_bars([row.speedup], color, width=5),
        mode="markers+text",
        marker={"color": color, "size": 13 if won else 10, "symbol": style.symbol},
        text=[f"<b>{ratio(row.speedup.estimate)}</b>" if won else ratio(row.speedup.estimate)],
        textposition="top center",
        textfont={"color": color, "size": 12},
        name=style.label,
        hovertext=[
            hover(
                style.label,
                f"{ratio(row.speedup.estimate)} ({bounds(row.speedup, 2)}) against {plain(row.baseline)}",
                f"n = {count(row.prompts, 'held-out prompt')}, p = {row.p_adjusted:.2g} after Holm",
            )
        ],
        hoverinfo="text",
    )


def _row_name(style: ArmStyle, won: bool) -> str:
    return f"<b>{style.label}</b>" if won else style.label


def _sides(figure: go.Figure, margin: float) -> None:
    """Which way is faster, above the plot."""
    shared = {"yref": "paper", "y": 1, "yanchor": "bottom", "yshift": 8, "showarrow": False}
    font = {"color": MUTED, "size": 12}
    figure.add_annotation(x=0, xref="paper", xanchor="left", text="← slower", font=font, **shared)
    text = f"faster →  (margin {ratio(1 + margin)})"
    figure.add_annotation(x=1, xref="paper", xanchor="right", text=text, font=font, **shared)
