"""What tokens cost: money and energy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from dashboards.figures.canvas import canvas, hover
from dashboards.theme import TEXT, Styles
from orchestrator.outputs import Rate

_ROW_PX = 34


@dataclass(frozen=True)
class Price:
    """A field of orchestrator.outputs.Rate and how it is written."""

    field: str
    title: str
    form: str


USD = Price("usd_per_million", "US dollars for a million output tokens", "${:,.2f}")
JOULES = Price("joules_per_token", "Joules for an output token", "{:,.2f} J")


def priced(rates: Sequence[Rate], price: Price) -> list[Rate]:
    """Rates whose price is known."""
    return [rate for rate in rates if getattr(rate, price.field) is not None]


def price_bars(rates: Sequence[Rate], styles: Styles, price: Price) -> go.Figure:
    """A bar an arm in reading order; arms without a price are left out. Rates of one concurrency."""
    known = priced(rates, price)
    shown = [rate for name in styles for rate in known if rate.arm == name]
    figure = canvas(84 + _ROW_PX * max(len(shown), 1), styles, right=64)
    values = [getattr(rate, price.field) for rate in shown]
    labels = [styles[rate.arm].label for rate in shown]
    written = [price.form.format(value) for value in values]
    figure.add_bar(
        x=values,
        y=labels,
        orientation="h",
        marker_color=[styles[rate.arm].color for rate in shown],
        text=written,
        textposition="outside",
        cliponaxis=False,
        textfont={"color": TEXT, "size": 12},
        hovertext=[
            hover(label, text, f"{rate.concurrency} at once")
            for label, text, rate in zip(labels, written, shown, strict=True)
        ],
        hoverinfo="text",
        name=price.field,
    )
    figure.update_xaxes(title_text=price.title, rangemode="tozero")
    figure.update_yaxes(autorange="reversed", showgrid=False, tickfont={"color": TEXT, "size": 12})
    figure.update_layout(bargap=0.35, margin_t=8)
    return figure
