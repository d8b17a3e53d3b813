"""What serves where, and the way back."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from dash import dcc, html
from dash.development.base_component import Component

from dashboards.app.address import Query, releases_address, run_address
from dashboards.app.parts import command, heads, problem_box, prose, row, scroll, section, word
from dashboards.app.places import DEPLOY
from dashboards.targets import Part, Step, Target, made_releases, read_targets
from dashboards.text import NONE, bounds, ms, tok_s, tokens
from orchestrator.errors import InputError
from orchestrator.promotion.journal import Kind
from orchestrator.promotion.release import Release

_SHOWN = 30
_KINDS = {Kind.PROMOTE: "promotion", Kind.ROLLBACK: "rollback"}


def releases_page(deploy: Path, folder: Path, query: Query, runs: set[str]) -> list[Component]:
    """The page's content. Of the query: `ask`, a target behind SSH. `runs`: names that have a page."""
    made, damaged = made_releases(folder)
    parts: list[Component | None] = [html.H1("Releases", className="plain"), problem_box(damaged)]
    try:
        targets = read_targets(deploy, query.get("ask", ""))
        parts += [_target(target, deploy, runs) for target in targets]
    except InputError as error:
        missing = f"{deploy}: no such file; docs/promotion.md says how targets are named."
        parts.append(html.P(str(error) if deploy.exists() else missing))
    parts.append(_made(made, runs))
    return [part for part in parts if part is not None]


def _target(target: Target, deploy: Path, runs: set[str]) -> Component:
    key = f"target-{target.name}"
    if not target.asked:
        ask = dcc.Link("Ask it now", href=releases_address(target.name))
        return section(key, target.name, [html.P([f"{target.hosts}, behind SSH: not asked yet. ", ask, "."])])
    if target.problem:
        return section(key, target.name, [html.P(f"It cannot be read: {target.problem}", className="violation")])
    body = [_part(part, runs) for part in target.parts]
    head = heads("Release", "Arm", "Part", "Share", "Replicas", "Promise: tok/s", words=("Arm", "Part", "Replicas"))
    table = scroll(html.Table([head, html.Tbody(body)], className="compact"), f"What {target.name} serves")
    return section(
        key,
        f"{target.name}: {_verdict(target)}",
        [
            html.P(f"On {target.hosts}. {_doing(target)}".strip(), className="note"),
            table if body else None,
            *_way_back(target, deploy),
            _history(target.name, target.history),
        ],
    )


def _verdict(target: Target) -> str:
    serving = next((part for part in target.parts if part.name == "serving"), None)
    if serving is None:
        return "nothing serves"
    return f"{_arm(serving)} serves"


def _doing(target: Target) -> str:
    change = target.standing.change
    if change is None:
        return f"Held by {target.busy}." if target.busy else ""
    canary = next((part.share for part in target.parts if part.placed.release == change.new.release), 0.0)
    who = f"by {target.busy}" if target.busy else "by nobody any more: the same command again goes on or cleans up"
    failed = f" It failed: {change.failed}." if change.failed else ""
    what = f"A {_KINDS[change.kind]} of {change.new.release} is going on, {who}"
    return f"{what}; it has {canary:g} % of the sessions.{failed}"


def _part(part: Part, runs: set[str]) -> Component:
    promise = part.release.record.promise if part.release else None
    speed = f"{tok_s(promise.output_tok_s.estimate)} ({bounds(promise.output_tok_s, 1)})" if promise else NONE
    where = ", ".join(f"{r.host}:{r.port}" for r in part.placed.replicas)
    name = [part.placed.release, *_from(part.release, runs)]
    return row(name, word(_arm(part)), word(part.name), f"{part.share:g} %", word(where), speed)


def _arm(part: Part) -> str:
    return part.release.record.arm.name if part.release else part.placed.release


def _from(release: Release | None, runs: set[str]) -> list[Component | str]:
    """The run that a release is from, as a link where it has a page."""
    if release is None:
        return []
    run = release.record.run
    return [html.Span(["from ", dcc.Link(run, href=run_address(run)) if run in runs else run], className="question")]


def _way_back(target: Target, deploy: Path) -> list[Component]:
    standing = target.standing
    if standing.change and not standing.change.turned:
        what = f"Undoes the change that is going on: {standing.change.new.release} goes away again."
    elif standing.previous:
        until = datetime.fromtimestamp(standing.warm_until, UTC).strftime("%Y-%m-%d %H:%M UTC")
        what = f"Goes back to {standing.previous.release}, which is kept warm until {until}."
    else:
        return [html.P("There is no release to go back to.", className="note")] if standing.serving else []
    words = ["orchestrate", "rollback", target.name]
    words += ["--deploy", str(deploy)] if deploy != DEPLOY else []
    return [command(shlex.join(words)), html.P(what, className="note")]


def _history(target: str, steps: Sequence[Step]) -> Component | None:
    if not steps:
        return None
    body = [
        row(
            step.began[:19].replace("T", " "),
            word(step.kind),
            word(step.release),
            word(step.outcome),
            prose(step.reason),
        )
        for step in steps[:_SHOWN]
    ]
    titles = ("Began (UTC)", "Change", "Release", "Outcome", "Why")
    table = html.Table([heads(*titles, words=titles[1:]), html.Tbody(body)], className="compact")
    return html.Div([html.H3("History"), scroll(table, f"Changes of {target}")])


def _made(releases: Sequence[Release], runs: set[str]) -> Component | None:
    if not releases:
        return None
    body = [
        row(
            [release.name, *_from(release, runs)],
            tok_s(release.record.promise.output_tok_s.estimate),
            ms(release.record.promise.tpot_ms.estimate),
            tokens(release.record.promise.acceptance_length.estimate),
        )
        for release in releases[:_SHOWN]
    ]
    head = heads("Release", "Promise: tok/s", "TPOT, ms", "Acceptance length")
    table = scroll(html.Table([head, html.Tbody(body)], className="compact"), "Releases made here")
    return section("made", "Made on this machine", [table])
