"""Pieces that several pages share. Text from a run only ever becomes the text of an element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import html
from dash.development.base_component import Component

from dashboards.text import NONE, bounds
from dashboards.theme import ArmStyle
from orchestrator.records import Interval, Verdict

Child = Component | str
Children = Sequence[Child] | Child

_BADGES = {
    Verdict.WINNER: ("✓", "winner", "winner"),
    Verdict.TIE: ("=", "tie", "tie"),
    Verdict.INVALID: ("!", "invalid", "invalid"),
}


def attributes(**values: str) -> dict[str, Any]:
    """aria_label=… as the attribute aria-label, which is no name in Python."""
    return {name.replace("_", "-"): value for name, value in values.items()}


def badge(verdict: Verdict | None, running: bool = False) -> Component:
    """The verdict as a sign and a word."""
    sign, word, kind = _BADGES[verdict] if verdict else ("…", "running" if running else "undecided", "open")
    return html.Span([html.Span(sign, **attributes(aria_hidden="true")), f" {word}"], className=f"badge {kind}")


def swatch(style: ArmStyle | None) -> Component:
    """An arm's colour; nothing for an arm that no run describes."""
    if style is None:
        return html.Span()
    return html.Span(className="swatch", style={"--light": style.color, "--dark": style.dark})


def interval(value: Interval, write: Any, digits: int) -> list[Component | str]:
    """An estimate with the ends of its interval."""
    shown: list[Component | str] = [html.Span(write(value.estimate), className="value")]
    if value.low != value.high:
        shown += [" ", html.Span(bounds(value, digits), className="bounds")]
    return shown


def scroll(table: Component, label: str) -> Component:
    """A table that may be wider than the page, reachable by keyboard."""
    return html.Div(table, className="scroll", tabIndex="0", role="region", **attributes(aria_label=label))


def row(head: Children, *cells: Component | str, won: bool = False) -> Component:
    """A table's row; cells that are no elements yet become plain ones."""
    made = [cell if isinstance(cell, html.Td) else html.Td(cell) for cell in cells]
    return html.Tr([html.Th(head, scope="row"), *made], className="won" if won else None)


def word(text: Children) -> Component:
    """A cell of words, not numbers."""
    return html.Td(text, className="word")


def prose(text: Children) -> Component:
    """A cell of running text."""
    return html.Td(text, className="text")


def heads(*titles: str, words: Sequence[str] = ()) -> Component:
    """A table's head; columns in `words` are aligned like text."""
    cells = [html.Th(title, scope="col", className="word" if title in words else None) for title in titles]
    return html.Thead(html.Tr(cells))


def fact(name: str, value: Children) -> Component:
    """An entry of a description list."""
    return html.Div([html.Dt(name), html.Dd(value or NONE)])


def command(line: str) -> Component:
    """A command to copy; assets/app.js does it."""
    return html.Div(
        [
            html.Pre(html.Code(line), tabIndex="0"),
            html.Button("Copy", type="button", className="button copy"),
            html.Span(role="status"),
        ],
        className="command",
    )


def section(key: str, title: str, children: Sequence[Component | None]) -> Component:
    """A part of a page that can be linked to."""
    shown = [child for child in children if child is not None]
    return html.Section([html.H2(title, id=key), *shown], **attributes(aria_labelledby=key))


def problem_box(problems: Sequence[str]) -> Component | None:
    """Which files could not be read."""
    if not problems:
        return None
    return html.Section(
        [
            html.H2("Damaged files", id="problems"),
            html.P("These could not be read; what follows leaves them out."),
            html.Ul([html.Li(problem) for problem in problems]),
        ],
        className="problems",
        role="alert",
        **attributes(aria_labelledby="problems"),
    )
