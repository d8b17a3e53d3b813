"""The list of runs: what was found, what is measured now, and two runs to hold beside each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dash import dcc, html
from dash.development.base_component import Component

from dashboards.app.address import Query, run_address, written
from dashboards.app.choices import select
from dashboards.app.parts import attributes, badge, heads, row, scroll, word
from dashboards.text import NONE, bounds, count, ratio
from orchestrator.cards import Card, Progress
from orchestrator.records import Verdict
from orchestrator.times import clock

FIRST = 60
"""Runs that a list begins with: a browser takes a second for some hundreds of rows."""

_AGES = {"1": "last day", "7": "last 7 days", "30": "last 30 days", "365": "last year"}
_KINDS: dict[str, Callable[[Card], Sequence[str]]] = {
    "engine": lambda card: card.engines,
    "model": lambda card: card.models,
    "gpu": lambda card: card.gpus or ["none"],
    "verdict": lambda card: [card.verdict.value if card.verdict else "undecided"],
}
_TITLES = {"engine": "Engine", "model": "Model", "gpu": "GPU", "verdict": "Verdict"}


def runs_page(folder: Path, cards: Sequence[Card], running: set[str], query: Query) -> list[Component]:
    """The page's content."""
    if not cards:
        return [html.H1("No runs yet"), _nothing(folder)]
    shown = filtered(cards, query, datetime.now(UTC))
    title = html.H1(count(len(cards), "run"), className="plain")
    if not shown:
        return [title, _filters(cards, query), html.P("No run matches these filters.", role="status")]
    listed = shown if query.get("show") == "all" else shown[:FIRST]
    note = f"{len(shown)} of {count(len(cards), 'run')}" if len(shown) < len(cards) else "Newest first."
    table = html.Table(
        [
            heads("Run", "Verdict", "Answer", "Gain", "Measured on", "Trials", "Began (UTC)", words=_WORDS),
            html.Tbody([_row(card, card.name in running) for card in listed]),
        ],
        className="runs",
    )
    return [
        title,
        _filters(cards, query),
        html.P(note, className="note", role="status"),
        scroll(table, "Runs"),
        *_rest(len(shown) - len(listed), len(shown), query),
        diff_form([card.name for card in cards]),
    ]


_WORDS = ("Verdict", "Answer", "Measured on", "Began (UTC)")


def live(cards: Sequence[Card]) -> list[Component]:
    """What is measured now; empty when nothing is."""
    if not cards:
        return []
    return [
        html.Section(
            [html.H2("Measuring now", id="live-title"), *[_measuring(card) for card in cards]],
            className="live",
            **attributes(aria_labelledby="live-title"),
        )
    ]


def filtered(cards: Sequence[Card], query: Query, now: datetime) -> list[Card]:
    """Cards that every filter of the query lets through."""
    kept = [c for c in cards if all(query[kind] in of(c) for kind, of in _KINDS.items() if query.get(kind))]
    words = query.get("text", "").casefold().split()
    kept = [c for c in kept if all(word in f"{c.name} {c.question} {c.sentence}".casefold() for word in words)]
    if query.get("age") in _AGES:
        since = now - timedelta(days=int(query["age"]))
        kept = [card for card in kept if (began := _began(card)) and began >= since]
    return kept


def _row(card: Card, running: bool) -> Component:
    gain: list[Component | str] = [NONE]
    if card.speedup:
        gain = [ratio(card.speedup.estimate), " ", html.Span(bounds(card.speedup, 2), className="bounds")]
    name = [
        dcc.Link(card.name, href=run_address(card.name)),
        html.Span(card.question, className="question"),
        *([html.Span(count(len(card.problems), "damaged file"), className="violation")] if card.problems else []),
    ]
    began = _began(card)
    return row(
        name,
        word(badge(card.verdict, running)),
        word(_answer(card)),
        html.Td(gain),
        word(_place(card)),
        html.Td(trials(card.progress)),
        word(began.strftime("%Y-%m-%d %H:%M") if began else NONE),
        won=card.verdict is Verdict.WINNER,
    )


def _rest(hidden: int, total: int, query: Query) -> list[Component]:
    if not hidden:
        return []
    address = f"/{written({**query, 'show': 'all'})}"
    return [html.P(dcc.Link(f"Show all {count(total, 'run')}, {hidden} more", href=address))]


def diff_form(names: Sequence[str], a: str = "", b: str = "") -> Component:
    """Two runs to hold beside each other."""
    choices = {name: name for name in names}
    return html.Form(
        [
            select("a", "Compare", choices, a, "a run"),
            select("b", "with", choices, b, "a run"),
            html.Button("Show the differences", type="submit", className="button"),
        ],
        action="/diff",
        method="get",
        className="filters navigates pair",
    )


def _answer(card: Card) -> list[Component | str]:
    if card.verdict is Verdict.TIE:
        return [f"keep {card.arm}"]
    if card.arm is None:
        return [NONE]
    return [card.arm, html.Span(f"against {card.baseline}, {card.concurrency} at once", className="question")]


def _place(card: Card) -> list[Component | str]:
    what = " · ".join(filter(None, [", ".join(card.engines), ", ".join(card.models)]))
    return [", ".join(card.gpus) or "no GPU", html.Span(what, className="question")]


def trials(progress: Progress) -> str:
    """Trials measured and planned, and how many of them do not count."""
    total = f"{progress.done}/{progress.planned}" if progress.planned is not None else str(progress.done)
    bad = progress.invalid + progress.failed
    return f"{total}, {bad} bad" if bad else total


def _measuring(card: Card) -> Component:
    at = card.progress
    planned = at.planned or at.done or 1
    left = f", about {clock(at.seconds_left)} left" if at.seconds_left is not None else ""
    label = f"{at.done} of {at.planned if at.planned is not None else '?'} trials{left}"
    share = 100 * min(at.done / planned, 1)
    bar = attributes(aria_valuemin="0", aria_valuemax=str(planned), aria_valuenow=str(at.done), aria_label=card.name)
    return html.Div(
        [
            html.P([dcc.Link(card.name, href=run_address(card.name)), f" {label}"]),
            html.Div(html.I(style={"width": f"{share:.1f}%"}), className="bar", role="progressbar", **bar),
            html.Ul([html.Li(line) for line in at.doing]),
        ],
        className="measuring",
    )


def _filters(cards: Sequence[Card], query: Query) -> Component:
    choices = {kind: sorted({value for card in cards for value in of(card)}) for kind, of in _KINDS.items()}
    selects = [
        select(kind, _TITLES[kind], {value: value for value in values}, query.get(kind, ""))
        for kind, values in choices.items()
    ]
    search = html.Div(
        [
            html.Label("Search", htmlFor="filter-text"),
            dcc.Input(id="filter-text", type="search", name="text", value=query.get("text", ""), debounce=True),
        ]
    )
    return html.Form(
        [
            *selects,
            select("age", "Began", _AGES, query.get("age", "")),
            search,
            html.Button("Filter", type="submit", className="button"),
            dcc.Link("Clear", href="/"),
        ],
        action="/",
        method="get",
        className="filters navigates instant",
        role="search",
    )


def _nothing(folder: Path) -> Component:
    return html.P([f"{folder} holds no run. ", html.Code("orchestrate sweep FILE"), " makes one."])


def _began(card: Card) -> datetime | None:
    try:
        began = datetime.fromisoformat(card.started)
    except ValueError:
        return None
    return began if began.tzinfo else began.replace(tzinfo=UTC)
