"""The table of arms: sortable, intervals drawn; before the decision, how far each arm is."""

from __future__ import annotations

from collections.abc import Callable

from dash import html
from dash.development.base_component import Component

from dashboards import text
from dashboards.app.address import Query, run_address
from dashboards.app.parts import attributes, heads, interval, row, scroll, section, swatch, word
from dashboards.run import Run
from dashboards.table import Group, Row, arm_groups, progress, unsettled
from orchestrator.records import Decision

_COLUMNS: dict[str, tuple[str, Callable[[Row], float]]] = {
    "tok_s": ("Output, tok/s", lambda r: -r.summary.output_tok_s.estimate),
    "speedup": ("Speed-up", lambda r: -r.comparison.speedup.estimate if r.comparison else -1.0),
    "acceptance": ("Acceptance length", lambda r: -r.summary.acceptance_length.estimate),
    "tpot": ("TPOT p50", lambda r: r.summary.tpot_ms_p50),
    "tpot90": ("p90", lambda r: r.summary.tpot_ms_p90),
    "ttft": ("TTFT p50", lambda r: r.summary.ttft_ms_p50),
    "ttft90": ("p90", lambda r: r.summary.ttft_ms_p90),
    "goodput": ("Goodput, req/s", lambda r: -(r.summary.goodput_rps or 0.0)),
}
"""What the table sorts by: the best first."""


def arms_section(run: Run, query: Query) -> Component | None:
    """None when the run names no arm."""
    groups = arm_groups(run)
    if run.decision and groups:
        note = html.P(
            f"Estimates with their {text.percent(run.decision.confidence)} intervals. Latencies in ms{unsettled(run)}. "
            "A column’s title sorts by it, the best first.",
            className="note",
        )
        table = scroll(_table(run, run.decision, groups, query), "Arms")
        return section("arms", "The arms", [note, table, *_caveats(groups)])
    return _progress(run) if run.styles else None


def _table(run: Run, decision: Decision, groups: list[Group], query: Query) -> Component:
    chosen = query.get("sort", "tok_s")
    _, key = _COLUMNS.get(chosen, _COLUMNS["tok_s"])
    bodies = []
    for group in groups:
        rows = [_row(item, decision) for item in sorted(group.rows, key=key)]
        if len(groups) > 1:
            rows.insert(0, _point(group, decision))
        bodies.append(html.Tbody(rows))
    return html.Table([_head(run, query, chosen), *bodies], className="arms")


def _caveats(groups: list[Group]) -> list[Component]:
    """What to know before believing a row."""
    return [
        html.P(
            [swatch(it.style), html.B(it.summary.arm), f", {group.concurrency} at once: {caveat}."], className="note"
        )
        for group in groups
        for it in group.rows
        for caveat in it.caveats
    ]


def _head(run: Run, query: Query, chosen: str) -> Component:
    cells: list[Component] = [html.Th("Arm", scope="col")]
    for name, (title, _) in _COLUMNS.items():
        address = run_address(run.name, {**query, "sort": name})
        sorted_by = attributes(aria_sort="descending" if name == chosen else "none")
        cells.append(html.Th(html.A(title, href=address, className="sort stays"), scope="col", **sorted_by))
        if name == "tok_s":
            cells.append(html.Td(className="drawn", **attributes(aria_hidden="true")))
    cells += [html.Th("Gate", scope="col", className="word"), html.Th("n", scope="col")]
    return html.Thead(html.Tr(cells))


def _point(group: Group, decision: Decision) -> Component:
    which = " (the decision’s)" if group.concurrency == decision.concurrency else ""
    title = f"{text.count(group.concurrency, 'request')} at once{which}"
    return html.Tr(html.Th(title, scope="rowgroup", colSpan=12), className="point")


def _row(item: Row, decision: Decision) -> Component:
    s = item.summary
    count: list[Component | str] = [f"{s.requests:,}"]
    if s.errors:
        count += [" ", html.Span(text.count(s.errors, "error"), className="bounds")]
    gate = ("passed" if item.gate.passed else "failed") if item.gate else text.NONE
    return row(
        [swatch(item.style), s.arm],
        html.Td(interval(s.output_tok_s, text.tok_s, 1)),
        html.Td(_drawn(item), className="drawn", **attributes(aria_hidden="true")),
        html.Td(_speedup(item, decision)),
        html.Td(interval(s.acceptance_length, text.tokens, 2)),
        *(text.percentile(s, latency, percent) for latency in ("tpot", "ttft") for percent in (50, 90)),
        text.NONE if s.goodput_rps is None else f"{s.goodput_rps:.2f}",
        word(gate),
        html.Td(count),
        won=item.won,
    )


def _speedup(item: Row, decision: Decision) -> list[Component | str]:
    if item.comparison:
        return interval(item.comparison.speedup, text.ratio, 2)
    return [html.Span("baseline" if item.summary.arm == decision.baseline else text.NONE, className="bounds")]


def _drawn(item: Row) -> Component:
    """The interval of the output speed on the table's own scale."""
    width = item.high - item.low
    parts = [
        html.I(style={"left": f"{item.low:.2f}%", "width": f"{width:.2f}%"}),
        html.B(style={"left": f"{item.middle:.2f}%"}),
    ]
    return html.Span(parts, className="track", style={"--light": item.style.color, "--dark": item.style.dark})


def _progress(run: Run) -> Component:
    body = [
        row(
            [swatch(item.style), item.style.name],
            text.NONE if item.planned is None else str(item.planned),
            str(item.valid),
            str(item.invalid),
            str(item.failed),
        )
        for item in progress(run)
    ]
    table = html.Table([heads("Arm", "Planned", "Valid", "Invalid", "Failed"), html.Tbody(body)], className="compact")
    return section("arms", "The arms", [html.P("Trials stored so far.", className="note"), scroll(table, "Trials")])
