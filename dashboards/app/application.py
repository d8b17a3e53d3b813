"""The Dash app: one callback turns an address into a page, another keeps what is measured now up to date."""

from __future__ import annotations

import logging
import uuid
from importlib.metadata import version
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, dcc, html
from dash.development.base_component import Component
from flask import Response
from plotly.offline import get_plotlyjs

from dashboards.app.address import Query, parsed, releases_address, run_name
from dashboards.app.diff_page import diff_page
from dashboards.app.guard import Guard
from dashboards.app.library import Library
from dashboards.app.parts import attributes
from dashboards.app.places import Places
from dashboards.app.releases_page import releases_page
from dashboards.app.run_page import run_page
from dashboards.app.runs_page import live, runs_page
from dashboards.app.trees_page import trees_page
from dashboards.report import asset
from orchestrator.errors import InputError

_LOG = logging.getLogger(__name__)
_TICK_MS = 2_500
_DAY_S = 86_400

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="plotly" content="/plotly.min.js?PLOTLY">
<title>{%title%}</title>
<link rel="icon" href="data:,">
<style>REPORT_STYLE</style>
{%css%}
</head>
<body>
{%app_entry%}
{%config%}{%scripts%}{%renderer%}
</body>
</html>"""


def create_app(places: Places, guard: Guard) -> Dash:
    """The app, behind `guard`."""
    app = Dash(
        __name__,
        title="orchestrate",
        update_title="",
        serve_locally=True,
        suppress_callback_exceptions=True,
        enable_mcp=False,
        index_string=_PAGE.replace("REPORT_STYLE", asset("templates/report.css")).replace("PLOTLY", version("plotly")),
    )
    app.layout = _layout()
    library = Library(places.runs)

    # Pages and the beat have a callback each: of one that is asked again, Dash drops the answer still on its way.
    @app.callback(
        Output("page", "children"),
        Output("title", "data"),
        Input("url", "pathname"),
        Input("url", "search"),
        Input("again", "data"),
    )
    def _show(path: str | None, search: str | None, _again: str | None) -> tuple[Any, ...]:
        try:
            title, content = _content(places, library, path or "/", parsed(search))
        except Exception:
            _LOG.exception("page %r", path)
            title, content = (
                "Fault",
                _missing("This page cannot be shown: a fault of ours. The terminal says more.", "Fault"),
            )
        # Under an id of its own the page is made anew: Dash keeps some of the elements that look like the ones before.
        return html.Div(content, id=f"view-{uuid.uuid4().hex}"), title

    @app.callback(
        Output("live", "children"),
        Output("state", "data"),
        Input("tick", "n_intervals"),
        Input("url", "pathname"),
    )
    def _follow(_beat: int, path: str | None) -> tuple[Any, ...]:
        cards = library.cards()
        running = [card for card in cards if library.running(card.name)]
        # A page is drawn again only when a sweep began, ended or was decided: not under a reader's hand.
        state = str([(c.name, c.verdict) for c in cards] + [c.name for c in running])
        current = run_name(path or "/")
        return live([card for card in running if current in (None, card.name)]), state

    for name, source, target in (("title", "title", "titled"), ("changed", "state", "noted")):
        app.clientside_callback(  # type: ignore[no-untyped-call]
            ClientsideFunction("orchestrate", name), Output(target, "data"), Input(source, "data")
        )

    @app.server.get("/plotly.min.js")  # type: ignore[untyped-decorator]
    def _plotly() -> Response:
        answer = Response(get_plotlyjs(), mimetype="text/javascript")
        answer.cache_control.max_age = _DAY_S
        return answer

    guard.watch(app.server, app.csp_hashes())
    return app


def _layout() -> Component:
    return html.Div(
        [
            html.A("Skip to the content", href="#main", className="skip"),
            dcc.Location(id="url", refresh=False),
            dcc.Interval(id="tick", interval=_TICK_MS),
            *[dcc.Store(id=name) for name in ("title", "titled", "state", "noted", "again")],
            html.Header(
                [
                    html.P(dcc.Link("orchestrate", href="/"), className="brand"),
                    html.Nav(
                        [dcc.Link("Runs", href="/"), dcc.Link("Releases", href=releases_address())],
                        **attributes(aria_label="Pages"),
                    ),
                ]
            ),
            html.Main(
                [html.Div(id="live"), html.Div(html.P("Loading…", className="note"), id="page")],
                id="main",
                tabIndex="-1",
            ),
        ]
    )


def _content(places: Places, library: Library, path: str, query: Query) -> tuple[str, list[Component]]:
    """A page's title and content. What cannot be shown is said in its place."""
    name = run_name(path)
    try:
        if path == "/":
            cards = library.cards()
            running = {card.name for card in cards if library.running(card.name)}
            return "Runs", runs_page(library.folder, cards, running, query)
        if path == "/releases":
            names = {card.name for card in library.cards()}
            return "Releases", releases_page(places.deploy, places.releases, query, names)
        if path == "/diff":
            a, b = library.open(query.get("a", "")), library.open(query.get("b", ""))
            return f"{a.name} and {b.name}", diff_page(a, b, [card.name for card in library.cards()])
        if name is not None and path.startswith("/trees/"):
            return f"Draft trees of {name}", trees_page(library.open(name), query)
        if name is not None:
            return name, run_page(library.open(name), query, library.running(name), places)
    except InputError as error:
        return "Not here", _missing(str(error))
    return "Not here", _missing(f"There is no page {path}.")


def _missing(why: str, title: str = "Not here") -> list[Component]:
    return [html.H1(title, className="plain"), html.P(why), html.P(dcc.Link("All runs", href="/"))]
