"""Figures on a page. The server sends each one in light colours; assets/figures.js draws it when it comes into view, in
the reader's scheme and to the width there is."""

from __future__ import annotations

from collections.abc import Sequence

from dash import html
from dash.development.base_component import Component

from dashboards.app.parts import attributes
from dashboards.story import Plate


def plates(items: Sequence[Plate]) -> Component:
    """Figures with their titles and captions, two beside each other where there is room."""
    return html.Div([plate(item) for item in items], className="plates")


def plate(item: Plate) -> Component:
    """A figure, its title and how to read it."""
    drawing = html.Div(
        className="drawing",
        style={"minHeight": f"{item.figure.layout.height}px"},
        **attributes(data_key=item.key, data_figure=str(item.figure.to_json()), data_label=item.label),
    )
    return html.Figure(
        [html.H3(item.title), drawing, html.Figcaption(item.caption)],
        className="plate wide" if item.wide else "plate",
        id=f"figure-{item.key}",
    )
