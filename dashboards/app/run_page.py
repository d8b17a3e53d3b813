"""A run: the verdict, what it rests on, and what would follow from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dash import dcc, html
from dash.development.base_component import Component

from dashboards import explain, servers, text
from dashboards.app.address import Query, number, run_address, trees_address
from dashboards.app.arms import arms_section
from dashboards.app.choices import choices, select
from dashboards.app.equivalence_section import equivalence_section
from dashboards.app.parts import attributes, badge, fact, heads, problem_box, prose, row, scroll, section, swatch, word
from dashboards.app.places import Places
from dashboards.app.plots import plates
from dashboards.app.promotion import promotion_section
from dashboards.facts import flatten
from dashboards.run import Run
from dashboards.story import LIMITS, Chapter, chapters
from orchestrator.records import Decision, TrialState


def run_page(run: Run, query: Query, running: bool, places: Places) -> list[Component]:
    """The page's content. Of the query: `at` (requests at once), `sort`, `limit` of the goodput figure."""
    shown = explain.at_concurrency(run, number(query.get("at", "")))
    told = chapters(shown, query["limit"] if query.get("limit") in LIMITS else "tpot")
    parts: list[Component | None] = [
        _verdict(run, running),
        problem_box(run.problems),
        _card(run, run.decision) if run.decision else None,
        promotion_section(run, run.decision, places) if run.decision else None,
        arms_section(run, query),
        _point_choice(run, shown, query),
        *[_chapter(chapter, shown, query) for chapter in told],
        equivalence_section(run),
        _environment(run),
    ]
    return [part for part in (_contents(run, told), *parts) if part is not None]


def _contents(run: Run, told: Sequence[Chapter]) -> Component:
    names = {chapter.key: chapter.key.capitalize() for chapter in told}
    keys = {"promotion": "Promotion"} if run.decision else {}
    keys |= {"arms": "Arms"} | names
    if run.decision or not run.divergences.empty:
        keys["equivalence"] = "Equivalence"
    keys["environment"] = "Environment"
    return html.Nav([html.A(name, href=f"#{key}") for key, name in keys.items()], **attributes(aria_label="Sections"))


def _verdict(run: Run, running: bool) -> Component:
    question = run.decision.question if run.decision else run.spec.question if run.spec else ""
    verdict = run.decision.verdict if run.decision else None
    unread = any(problem.startswith("decision.json") for problem in run.problems)
    headline = "The decision cannot be read." if unread else explain.headline(run)
    title = html.H1(headline, id="headline", className="long" if len(headline) > 120 else None)
    return html.Section(
        [html.P(badge(verdict, running)), title, html.P(question, className="question")],
        className=f"verdict {verdict.value if verdict else 'open'}",
        **attributes(aria_labelledby="headline"),
    )


def _card(run: Run, decision: Decision) -> Component:
    found, won = explain.judged(decision), explain.winner(decision)
    facts = [
        fact("Winner" if won else "To run", decision.arm or "none"),
        fact("Against", decision.baseline),
        fact("Requests at once", str(decision.concurrency)),
    ]
    if found:
        what = "Gain" if won else f"{found.arm}, the best other arm,"
        gain = [
            html.Dt(f"{what} over {found.baseline}"),
            html.Dd(
                [
                    html.Strong(text.ratio(found.speedup.estimate)),
                    " ",
                    html.Span(text.bounds(found.speedup, 2), className="bounds"),
                ]
            ),
        ]
        facts = [html.Div(gain, className="gain win" if won else "gain"), *facts]
        facts.append(fact("Held-out prompts", str(found.prompts)))
        facts.append(fact("p after Holm", f"{found.p_adjusted:.2g}"))
        facts.append(fact("Weighted by tokens", text.ratio(found.token_weighted_speedup)))
    facts.append(fact("Margin to clear", text.percent(decision.margin, 1)))
    facts.append(fact("Confidence", text.percent(decision.confidence)))
    return html.Section(
        [html.Dl(facts), _others(run, decision, won)], className="card", **attributes(aria_label="Decision")
    )


def _others(run: Run, decision: Decision, won: str | None) -> Component:
    reasons = [
        html.Li([swatch(run.styles.get(r.arm)), html.B(r.arm), f" {r.text}"], className=r.kind)
        for r in explain.reasons(run)
    ]
    points = [
        html.P([swatch(run.styles.get(p.arm or "")), p.reason])
        for p in decision.points
        if p.concurrency != decision.concurrency
    ]
    title = "Why not the others" if won else "Why none won"
    return html.Div([html.H2(title), html.Ul(reasons), *points], className="others")


def _point_choice(run: Run, shown: Run, query: Query) -> Component | None:
    points = [point.concurrency for point in run.decision.points] if run.decision else []
    if len(points) < 2 or shown.decision is None:
        return None
    chosen = str(shown.decision.concurrency)
    choice = select("at", "Figures at", {str(p): text.count(p, "request") + " at once" for p in points}, chosen, "")
    return choices(run_address(run.name), [choice], query)


def _chapter(chapter: Chapter, run: Run, query: Query) -> Component:
    parts: list[Component | None] = []
    if any(plate.key == "goodput" for plate in chapter.plates):
        limits = {key: title.lower() for key, title in LIMITS.items()}
        limit = select("limit", "Goodput by a limit on", limits, query.get("limit", "tpot"), "")
        parts.append(choices(run_address(run.name), [limit], query))
    parts.append(plates(chapter.plates))
    if chapter.key == "trees":
        parts.append(html.P(dcc.Link("All recorded steps, arm by arm", href=trees_address(run.name))))
    if chapter.key == "conditions":
        parts.append(_bad_trials(run))
    return section(chapter.key, chapter.title, parts)


def _bad_trials(run: Run) -> Component | None:
    bad = [trial for trial in run.trials if trial.state is not TrialState.VALID]
    if not bad:
        return None
    body = [
        row(
            [swatch(run.styles.get(trial.arm)), trial.arm],
            str(trial.concurrency),
            str(trial.block),
            word(trial.state.value),
            prose(trial.reason),
        )
        for trial in bad
    ]
    head = heads("Arm", "At once", "Block", "State", "Why", words=("State", "Why"))
    table = scroll(html.Table([head, html.Tbody(body)]), "Trials that do not count")
    return html.Div([html.H3("Trials that do not count"), table])


def _environment(run: Run) -> Component:
    facts: Mapping[str, object] = run.environment
    rows = [row(name, prose(value)) for name, value in flatten(facts)]
    table = scroll(html.Table(html.Tbody(rows), className="compact environment"), "Environment") if rows else None
    sweep = html.Details([html.Summary("Sweep file"), html.Pre(html.Code(run.sweep_text), tabIndex="0")])
    return section("environment", "Where it ran", [*_servers(run), table, sweep])


def _servers(run: Run) -> list[Component]:
    said = servers.words(run)
    if not said.arms:
        return []
    names = [html.Th([swatch(arm), arm.name], scope="col", className="word") for arm in said.arms]
    head = html.Thead(html.Tr([html.Th("Setting", scope="col"), *names]))
    body = [row(name, *(word(text) for text in texts)) for name, texts in said.differ.items()]
    table = html.Table([head, html.Tbody(body)], className="compact")
    same = "; ".join(f"{name} {text}" for name, text in said.same.items())
    return [
        html.H3("What the servers said of themselves"),
        *([scroll(table, "Servers")] if said.differ else []),
        *([html.P(f"The same for all: {same}.", className="note")] if same else []),
        html.H3("The machine"),
    ]
