"""What one user gets against what all users get together."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from dashboards.figures.canvas import canvas, error_bars, hover, sample_size, y_title
from dashboards.figures.steps import LEGEND_BELOW
from dashboards.text import bounds, tok_s
from dashboards.theme import MUTED, SURFACE, Styles
from orchestrator.records import ArmSummary, Interval

_HEIGHT = 430


def pareto(summaries: Sequence[ArmSummary], styles: Styles) -> go.Figure:
    """Output speed of all requests together against the speed a single request sees, 1 / TPOT: a line an arm through
    its concurrencies. The dotted steps join what no other point beats in both."""
    figure = canvas(_HEIGHT, styles)
    edge = frontier([(_user(s).estimate, s.output_tok_s.estimate) for s in summaries])
    if edge:
        figure.add_scatter(
            x=[x for x, _ in edge],
            y=[y for _, y in edge],
            mode="lines",
            line={"color": MUTED, "width": 1, "dash": "dot", "shape": "vh"},
            name="not beaten in both",
            hoverinfo="skip",
        )
    for name, style in styles.items():
        points = sorted((s for s in summaries if s.arm == name), key=lambda s: s.concurrency)
        if points:
            users, totals = [_user(s) for s in points], [s.output_tok_s for s in points]
            figure.add_scatter(
                x=[user.estimate for user in users],
                y=[total.estimate for total in totals],
                error_x=error_bars(users, style.color),
                error_y=error_bars(totals, style.color),
                mode="lines+markers+text",
                line={"color": style.color, "width": 1.5},
                marker={
                    "color": style.color,
                    "symbol": style.symbol,
                    "size": 10,
                    "line": {"color": SURFACE, "width": 1},
                },
                text=[str(s.concurrency) for s in points],
                textposition="top right",
                textfont={"color": style.color, "size": 11},
                name=style.label,
                hovertext=[_hover(s, styles) for s in points],
                hoverinfo="text",
            )
    figure.update_xaxes(title_text="Output speed of one request, tok/s (1 / TPOT)", rangemode="tozero")
    figure.update_yaxes(rangemode="tozero")
    figure.update_layout(showlegend=True, **LEGEND_BELOW)
    y_title(figure, "Output speed, tok/s, all together; numbers: requests at once")
    return figure


def frontier(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Points that no other one beats in both coordinates, from left to right."""
    best, kept = float("-inf"), []
    for x, y in sorted(points, reverse=True):
        if y > best:
            kept.append((x, y))
            best = y
    return kept[::-1]


def _user(summary: ArmSummary) -> Interval:
    """Tokens a second of one request: the stored TPOT turned over."""
    tpot = summary.tpot_ms
    return Interval(estimate=1e3 / tpot.estimate, low=1e3 / tpot.high, high=1e3 / tpot.low)


def _hover(summary: ArmSummary, styles: Styles) -> str:
    user, total = _user(summary), summary.output_tok_s
    return hover(
        styles[summary.arm].label,
        f"{summary.concurrency} at once",
        f"{tok_s(user.estimate)} tok/s a request ({bounds(user, 1)})",
        f"{tok_s(total.estimate)} tok/s together ({bounds(total, 1)})",
        sample_size(summary),
    )
