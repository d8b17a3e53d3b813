"""Two runs beside each other: what was found, what was asked differently, on what other machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dash import dcc, html
from dash.development.base_component import Component

from dashboards import text
from dashboards.app.address import run_address
from dashboards.app.parts import (
    Children,
    attributes,
    badge,
    heads,
    interval,
    problem_box,
    prose,
    row,
    scroll,
    section,
    swatch,
    word,
)
from dashboards.app.runs_page import diff_form
from dashboards.explain import headline
from dashboards.facts import flatten
from dashboards.run import Run
from orchestrator.records import ArmSummary, Interval


def diff_page(a: Run, b: Run, names: Sequence[str]) -> list[Component]:
    """The page's content."""
    parts: list[Component | None] = [
        html.H1("Two runs", className="plain"),
        diff_form(names, a.name, b.name),
        problem_box([f"{run.name}: {problem}" for run in (a, b) for problem in run.problems]),
        html.Div([_found("A", a), _found("B", b)], className="sides"),
        _arms(a, b),
        _table("asked", "Asked differently", _spec(a), _spec(b)),
        _table("environments", "Measured elsewhere", dict(flatten(a.environment)), dict(flatten(b.environment))),
    ]
    return [part for part in parts if part is not None]


def differences(a: Mapping[str, str], b: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Names whose values differ, in `a`'s order and then `b`'s, with both values."""
    keys = [*a, *(key for key in b if key not in a)]
    return [(key, a.get(key, text.NONE), b.get(key, text.NONE)) for key in keys if a.get(key) != b.get(key)]


def apart(a: Interval, b: Interval) -> str:
    """Which of two intervals lies above the other, in words."""
    if b.low > a.high:
        return "B higher"
    return "A higher" if a.low > b.high else "overlap"


def _found(side: str, run: Run) -> Component:
    verdict = run.decision.verdict if run.decision else None
    return html.Section(
        [
            html.H2([f"{side}: ", dcc.Link(run.name, href=run_address(run.name))]),
            html.P(badge(verdict)),
            html.P(headline(run)),
            html.P(run.decision.question if run.decision else "", className="question"),
        ],
        **attributes(aria_label=f"Run {side}"),
    )


def _arms(a: Run, b: Run) -> Component:
    left, right = _summaries(a), _summaries(b)
    both = [key for key in left if key in right]
    rows = [_arm(a, key, left[key], right[key]) for key in both]
    only = [
        f"{side} alone has {', '.join(f'{arm} at {at} at once' for arm, at in keys)}."
        for side, keys in _alone(left, right)
    ]
    head = heads(
        "Arm", "At once", "A, tok/s", "B, tok/s", "Intervals", "A, acceptance length", "B", words=("Intervals",)
    )
    table = scroll(html.Table([head, html.Tbody(rows)]), "Arms of both runs") if rows else None
    compare = html.Code("orchestrate compare")
    days: Children = [
        "An interval knows nothing of what differs between two days; ",
        compare,
        " does, by the baselines.",
    ]
    below = html.P(days if rows else "No arm was measured in both runs at one concurrency.", className="note")
    return section("arms", "Arms that both measured", [table, below, *[html.P(line) for line in only]])


def _arm(run: Run, key: tuple[str, int], a: ArmSummary, b: ArmSummary) -> Component:
    return row(
        [swatch(run.styles.get(key[0])), key[0]],
        str(key[1]),
        html.Td(interval(a.output_tok_s, text.tok_s, 1)),
        html.Td(interval(b.output_tok_s, text.tok_s, 1)),
        word(apart(a.output_tok_s, b.output_tok_s)),
        html.Td(interval(a.acceptance_length, text.tokens, 2)),
        html.Td(interval(b.acceptance_length, text.tokens, 2)),
    )


Summaries = Mapping[tuple[str, int], ArmSummary]


def _summaries(run: Run) -> dict[tuple[str, int], ArmSummary]:
    return {(s.arm, s.concurrency): s for s in run.decision.summaries} if run.decision else {}


def _alone(a: Summaries, b: Summaries) -> list[tuple[str, list[tuple[str, int]]]]:
    sides = [("A", [key for key in a if key not in b]), ("B", [key for key in b if key not in a])]
    return [(side, keys) for side, keys in sides if keys]


def _spec(run: Run) -> dict[str, str]:
    return dict(flatten(run.spec.model_dump(mode="json"))) if run.spec else {}


def _table(key: str, title: str, a: Mapping[str, str], b: Mapping[str, str]) -> Component:
    rows = [row(name, prose(left), prose(right)) for name, left, right in differences(a, b)]
    if not rows:
        return section(key, title, [html.P("No difference.")])
    head = heads("Setting", "A", "B", words=("A", "B"))
    table = html.Table([head, html.Tbody(rows)], className="compact environment")
    return section(key, title, [scroll(table, f"{title}, table")])
