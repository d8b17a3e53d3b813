"""Whether the arms wrote what plain decoding wrote: the gates, the gaps, the texts where they part."""

from __future__ import annotations

from collections.abc import Sequence

from dash import html
from dash.development.base_component import Component

from dashboards.app.parts import heads, prose, row, scroll, section, swatch, word
from dashboards.app.plots import plates
from dashboards.equivalence import NOTE, Passage, passages, worst
from dashboards.report import gap_plate, references
from dashboards.run import Run
from orchestrator.records import Divergence, GateResult

_MOST, _OPEN = 40, 6


def equivalence_section(run: Run) -> Component | None:
    """None where nothing was compared and nothing says why."""
    decision = run.decision
    plate = gap_plate(run)
    parts: list[Component | None] = []
    if decision and decision.unchecked:
        parts.append(html.P(f"Not checked: {decision.unchecked}."))
    if decision and decision.gates:
        parts += [html.P(NOTE, className="note"), _gates(run, decision.gates)]
    if plate:
        parts += [plates([plate]), *_divergences(run)]
    return section("equivalence", "Is the text the same?", parts) if parts else None


def _gates(run: Run, gates: Sequence[GateResult]) -> Component:
    body = [
        row(
            [swatch(run.styles.get(gate.arm)), gate.arm],
            str(gate.prompts),
            str(gate.exact),
            str(gate.near_ties),
            str(gate.violations),
            f"{gate.near_tie_gap:.3g}",
            word("passed" if gate.passed else "failed"),
            prose(gate.reason),
        )
        for gate in gates
    ]
    titles = ("Arm", "Prompts", "Exact", "Near-ties", "Violations", "Near-tie bound", "Gate", "Why")
    return scroll(html.Table([heads(*titles, words=("Gate", "Why")), html.Tbody(body)]), "Equivalence gates")


def _divergences(run: Run) -> list[Component]:
    found = worst(run.divergences, _MOST)
    texts = passages(found, run.requests, references(run))
    items = [_item(run, where, shown) for where, shown in zip(found, texts, strict=True)]
    title = "First divergences"
    if len(found) < len(run.divergences):
        title += f", the {len(found)} widest of {len(run.divergences)}"
    parts = [html.H3(title), html.Ol(items[:_OPEN], className="passages")]
    if len(items) > _OPEN:
        more = html.Ol(items[_OPEN:], start=str(_OPEN + 1), className="passages")
        parts.append(html.Details([html.Summary(f"{len(items) - _OPEN} more"), more]))
    return parts


def _item(run: Run, where: Divergence, texts: Passage | None) -> Component:
    kind = ("near-tie", "tie") if where.near_tie else ("violation", "violation")
    head = html.P(
        [
            swatch(run.styles.get(where.arm)),
            html.B(where.arm),
            " on ",
            html.B(where.prompt_id),
            f", token {where.position}, {where.concurrency} at once: gap {where.gap:.3g}, ",
            html.Span(kind[0], className=kind[1]),
        ]
    )
    if texts is None:
        tokens = f"token {where.expected_token} expected, {where.actual_token} given"
        return html.Li([head, html.P(f"{tokens}; the texts are not stored or read the same.", className="bounds")])
    pairs = [
        html.Dt("plain"),
        html.Dd([_visible(texts.before), html.Ins(_visible(texts.expected) or "(end)")]),
        html.Dt("arm"),
        html.Dd([_visible(texts.before), html.Del(_visible(texts.actual) or "(end)")]),
    ]
    return html.Li([head, html.Dl(pairs, className="texts")])


def _visible(text: str) -> str:
    """Line breaks as a sign: where two texts part, one of them is often the difference."""
    return text.replace("\n", "↵ ")
