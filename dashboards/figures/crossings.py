"""Up to how many requests at once an arm pays."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from dashboards.figures.canvas import canvas, error_bars, hover, log_range
from dashboards.text import bounds, plain
from dashboards.theme import MUTED, TEXT, Styles
from orchestrator.outputs import Crossing, Payoff
from orchestrator.records import Interval

_ROW_PX = 40


def payoff_ranges(crossings: Sequence[Crossing], styles: Styles) -> go.Figure:
    """A row an arm: a line over the concurrencies at which it is faster than what it is held against, ended by the
    crossing with its interval where there is one, and where that cannot be told by the last at which it surely is.
    Crossings against one arm."""
    rows = [found for name in styles for found in crossings if found.arm == name]
    figure = canvas(96 + _ROW_PX * max(len(rows), 1), styles, right=24)
    low = min((row.measured_from for row in rows), default=1)
    high = max((row.measured_to for row in rows), default=1)
    for row in rows:
        _row(figure, row, styles)
    ticks = [2**n for n in range(12) if low <= 2**n <= high] or [low]
    figure.update_xaxes(type="log", range=log_range(low / 1.15, high * 1.3), title_text="Requests at once")
    figure.update_xaxes(tickvals=ticks, ticktext=[str(tick) for tick in ticks])
    figure.update_yaxes(showgrid=False, autorange="reversed", tickfont={"size": 12, "color": TEXT})
    figure.update_layout(margin_t=12)
    return figure


def _row(figure: go.Figure, row: Crossing, styles: Styles) -> None:
    style = styles[row.arm]
    where, crossed = row.concurrency, row.payoff is Payoff.CROSSES
    says = f"until {where.estimate:.1f} ({bounds(where, 1)})" if where and crossed else _word(row)
    ends = {
        Payoff.THROUGHOUT: row.measured_to,
        Payoff.CROSSES: where.estimate if where else row.measured_from,
        Payoff.UNDECIDED: row.sure_to or row.measured_from,
    }
    begin, end = float(row.measured_from), float(ends.get(row.payoff, row.measured_from))
    low_half = end < math.sqrt(row.measured_from * row.measured_to)
    figure.add_scatter(
        x=[begin, end],
        y=[style.label] * 2,
        error_x=error_bars([_point(begin), where], style.color, width=5) if where and crossed else None,
        mode="lines+markers+text",
        line={"color": style.color, "width": 5},
        marker={"color": style.color, "size": [0, 10], "symbol": style.symbol, "opacity": 1},
        text=["", says],
        textposition="top right" if low_half else "top left",
        textfont={"color": TEXT if row.payoff is not Payoff.UNDECIDED else MUTED, "size": 12},
        name=style.label,
        hovertext=[hover(style.label, f"against {plain(row.against)}: {plain(says)}")] * 2,
        hoverinfo="text",
        cliponaxis=False,
    )


def _word(row: Crossing) -> str:
    if row.payoff is Payoff.UNDECIDED and row.sure_to is not None:
        return f"up to {row.sure_to}; beyond it {row.payoff.value}"
    return row.payoff.value


def _point(value: float) -> Interval:
    """No whisker."""
    return Interval(estimate=value, low=value, high=value)
