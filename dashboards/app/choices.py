"""Forms of native lists whose choice becomes part of the address."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from dash import html
from dash.development.base_component import Component

from dashboards.app.address import Query
from dashboards.app.parts import attributes


def choices(address: str, fields: Sequence[Component], query: Query) -> Component:
    """A form that keeps the rest of the address and follows as soon as something is chosen."""
    button = html.Button("Show", type="submit", className="button")
    return html.Form(
        [*fields, button],
        action=address,
        method="get",
        className="filters navigates instant",
        **attributes(data_keep=json.dumps(dict(query))),
    )


def select(name: str, title: str, values: Mapping[str, str], chosen: str, none: str = "any") -> Component:
    """A native list with its label; `none` names the choice of nothing and is left out when empty."""
    options = [html.Option(none, value="", selected=not chosen)] if none else []
    options += [html.Option(text, value=value, selected=value == chosen) for value, text in values.items()]
    field = f"filter-{name}"
    return html.Div([html.Label(title, htmlFor=field), html.Select(options, id=field, name=name)])
