"""What one user gets against what a GPU gives to all of them."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from dashboards.figures.canvas import canvas, error_bars, hover, y_title
from dashboards.figures.steps import LEGEND_BELOW
from dashboards.text import bounds, tok_s
from dashboards.theme import MUTED, SURFACE, Styles
from orchestrator.outputs import Rate

_HEIGHT = 430


def pareto(rates: Sequence[Rate], styles: Styles) -> go.Figure:
    """Tokens a second of a GPU (of the slot on a CPU) against those of one user: a line an arm through its
    concurrencies. The dotted steps join the points that no other one beats in both, as they are stored."""
    figure = canvas(_HEIGHT, styles)
    front = sorted((rate.tok_s_user.estimate, rate.tok_s_gpu.estimate) for rate in rates if rate.on_front)
    if front:
        figure.add_scatter(
            x=[x for x, _ in front],
            y=[y for _, y in front],
            mode="lines",
            line={"color": MUTED, "width": 1, "dash": "dot", "shape": "vh"},
            name="not beaten in both",
            hoverinfo="skip",
        )
    for name, style in styles.items():
        points = sorted((rate for rate in rates if rate.arm == name), key=lambda rate: rate.concurrency)
        if points:
            users, cards = [rate.tok_s_user for rate in points], [rate.tok_s_gpu for rate in points]
            figure.add_scatter(
                x=[user.estimate for user in users],
                y=[card.estimate for card in cards],
                error_x=error_bars(users, style.color),
                error_y=error_bars(cards, style.color),
                mode="lines+markers+text",
                line={"color": style.color, "width": 1.5},
                marker={
                    "color": style.color,
                    "symbol": style.symbol,
                    "size": 10,
                    "line": {"color": SURFACE, "width": 1},
                },
                text=[str(rate.concurrency) for rate in points],
                textposition="top right",
                textfont={"color": style.color, "size": 11},
                name=style.label,
                hovertext=[_hover(rate, style.label) for rate in points],
                hoverinfo="text",
            )
    figure.update_xaxes(title_text="Output speed of one request, tok/s", rangemode="tozero")
    figure.update_yaxes(rangemode="tozero")
    figure.update_layout(showlegend=True, **LEGEND_BELOW)
    what = "a GPU" if any(rate.gpus for rate in rates) else "the slot"
    y_title(figure, f"Output speed of {what}, tok/s; numbers: requests at once")
    return figure


def _hover(rate: Rate, label: str) -> str:
    user, card = rate.tok_s_user, rate.tok_s_gpu
    return hover(
        label,
        f"{rate.concurrency} at once",
        f"{tok_s(user.estimate)} tok/s a request ({bounds(user, 1)})",
        f"{tok_s(card.estimate)} tok/s {'a GPU' if rate.gpus else 'together'} ({bounds(card, 1)})",
    )
