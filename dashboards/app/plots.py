"""Figures on a page. The server sends each one in light colours; assets/app.js draws it when it comes into view, in the
reader's scheme and to the width there is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from dash import MATCH, ClientsideFunction, Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component

from dashboards.app.parts import attributes
from dashboards.story import Plate

GOODPUT = "goodput"


def plates(items: Sequence[Plate]) -> Component:
    """Figures with their titles and captions, two beside each other where there is room."""
    return html.Div([plate(item) for item in items], className="plates")


def plate(item: Plate) -> Component:
    """A figure, its title and how to read it."""
    return html.Figure(
        [html.H3(item.title), *_plot(item.key, item), html.Figcaption(item.caption)],
        className="plate wide" if item.wide else "plate",
        id=f"figure-{item.key}",
    )


def goodput_plate(item: Plate, limit: float, most: float) -> Component:
    """The goodput figure with the limit that the reader moves: by the line in the plot or by the slider under it."""
    slider = html.Div(
        [
            html.Label("Limit, ms", htmlFor="slo"),
            dcc.Input(id="slo", type="range", min=0, max=round(most, 1), step=_step(most), value=limit),
            html.Div(id="slo-table", className="slo-table", role="status"),
        ],
        className="slo",
    )
    return html.Figure(
        [html.H3(item.title), *_plot(GOODPUT, item, edits=True), slider, html.Figcaption(item.caption)],
        className="plate wide",
        id=f"figure-{item.key}",
    )


def register(app: Dash) -> None:
    """The callbacks that draw, all of them in the browser."""
    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction("orchestrate", "draw"),
        Output({"type": "plot", "key": MATCH}, "figure"),
        Output({"type": "plot", "key": MATCH}, "style"),
        Input({"type": "near", "key": MATCH}, "data"),
        Input("view", "data"),
        Input({"type": "figure", "key": MATCH}, "data"),
        State({"type": "plot", "key": MATCH}, "id"),
    )
    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction("orchestrate", "goodput"),
        Output("slo-table", "children"),
        Input("slo", "value"),
        Input({"type": "plot", "key": GOODPUT}, "figure"),
        State({"type": "figure", "key": GOODPUT}, "data"),
    )
    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction("orchestrate", "dragged"),
        Output("slo", "value"),
        Input({"type": "plot", "key": GOODPUT}, "relayoutData"),
        prevent_initial_call=True,
    )


def _plot(key: str, item: Plate, edits: bool = False) -> list[Component]:
    height = f"{item.figure.layout.height}px"
    config: Any = {"displayModeBar": False, "responsive": True, "edits": {"shapePosition": edits}}
    graph = dcc.Graph(
        id={"type": "plot", "key": key}, figure=go.Figure(), config=config, responsive=True, style={"height": height}
    )
    label = f"{item.title}. {item.caption}"
    return [
        html.Div(graph, role="img", className="plot", **attributes(aria_label=label, data_key=key)),
        dcc.Store(id={"type": "figure", "key": key}, data=item.figure.to_plotly_json()),
        dcc.Store(id={"type": "near", "key": key}, data=False),
    ]


def _step(most: float) -> float:
    return max(round(most / 200, 1), 0.1)
