"""The Dash app: one callback turns an address into a page, another keeps what is measured now up to date."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State, ctx, dcc, html, no_update
from dash.development.base_component import Component

from dashboards.app import plots
from dashboards.app.address import Query, parsed, run_name
from dashboards.app.diff_page import diff_page
from dashboards.app.guard import Guard
from dashboards.app.library import Library
from dashboards.app.run_page import run_page
from dashboards.app.runs_page import live, runs_page
from dashboards.report import asset
from orchestrator.errors import InputError

_LOG = logging.getLogger(__name__)
_TICK_MS = 2_500

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
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


def create_app(runs: Path, guard: Guard) -> Dash:
    """The app over a folder of runs, behind `guard`."""
    app = Dash(
        __name__,
        title="orchestrate",
        update_title="",
        serve_locally=True,
        suppress_callback_exceptions=True,
        enable_mcp=False,
        index_string=_PAGE.replace("REPORT_STYLE", asset("report.css")),
    )
    app.layout = _layout()
    library = Library(runs)

    @app.callback(
        Output("page", "children"),
        Output("title", "data"),
        Output("shown", "data"),
        Output("live", "children"),
        Input("url", "pathname"),
        Input("url", "search"),
        Input("tick", "n_intervals"),
        State("shown", "data"),
    )
    def _show(path: str | None, search: str | None, _beat: int, shown: str | None) -> tuple[Any, ...]:
        cards = library.cards()
        running = [card for card in cards if library.running(card)]
        # A page is drawn again on the beat only when a sweep began, ended or was decided: not under a reader's hand.
        state = str([(c.name, c.verdict) for c in cards] + [c.name for c in running])
        current = run_name(path or "/")
        here = [card for card in running if current in (None, card.name)]
        if ctx.triggered_id == "tick" and shown == state:
            return no_update, no_update, no_update, live(here)
        names = {card.name for card in running}
        try:
            title, content = _content(library, path or "/", parsed(search), names)
        except Exception:
            _LOG.exception("page %r", path)
            title, content = (
                "Fault",
                _missing("This page cannot be shown: a fault of ours. The terminal says more.", "Fault"),
            )
        return content, title, state, live(here)

    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction("orchestrate", "title"), Output("titled", "data"), Input("title", "data")
    )
    plots.register(app)
    guard.watch(app.server, app.csp_hashes())
    return app


def _layout() -> Component:
    return html.Div(
        [
            html.A("Skip to the content", href="#main", className="skip"),
            dcc.Location(id="url", refresh=False),
            dcc.Interval(id="tick", interval=_TICK_MS),
            *[dcc.Store(id=name) for name in ("title", "titled", "shown", "view")],
            html.Header(html.P(dcc.Link("orchestrate", href="/"), className="brand")),
            html.Main(
                [html.Div(id="live"), html.Div(html.P("Loading…", className="note"), id="page")],
                id="main",
                tabIndex="-1",
            ),
        ]
    )


def _content(library: Library, path: str, query: Query, running: set[str]) -> tuple[str, list[Component]]:
    """A page's title and content. What cannot be shown is said in its place."""
    name = run_name(path)
    try:
        if path == "/":
            return "Runs", runs_page(library.folder, library.cards(), running, query)
        if path == "/diff":
            a, b = library.open(query.get("a", "")).run, library.open(query.get("b", "")).run
            return f"{a.name} and {b.name}", diff_page(a, b, [card.name for card in library.cards()])
        if name is not None:
            return name, run_page(library.open(name), query, name in running)
    except InputError as error:
        return "Not here", _missing(str(error))
    return "Not here", _missing(f"There is no page {path}.")


def _missing(why: str, title: str = "Not here") -> list[Component]:
    return [html.H1(title, className="plain"), html.P(why), html.P(dcc.Link("All runs", href="/"))]
