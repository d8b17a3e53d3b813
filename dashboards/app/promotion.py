"""The command that promotes a run, or why it would be refused."""

from __future__ import annotations

import shlex
from pathlib import Path

from dash import dcc, html
from dash.development.base_component import Component

from dashboards.app.address import releases_address
from dashboards.app.parts import command, section
from dashboards.app.places import DEPLOY, RUNS, Places
from dashboards.run import Run
from orchestrator.errors import InputError
from orchestrator.promotion.preflight import of_evidence
from orchestrator.promotion.spec import load_deploy
from orchestrator.records import Decision


def promotion_section(run: Run, decision: Decision, places: Places) -> Component:
    """By the run's evidence alone: what a target forbids, its own dry run says."""
    reasons = refusals(decision)
    if reasons:
        why = html.Ul([html.Li(reason) for reason in reasons], className="refusals")
        return section("promotion", "Promotion would be refused", [why])
    targets, note = _targets(places.deploy)
    more = html.P(
        [
            f"Nothing in this run stands against {decision.arm}. Each command shows its plan first and asks; with "
            "--dry-run it stops there. ",
            note,
            dcc.Link("What serves now", href=releases_address()),
            ".",
        ],
        className="note",
    )
    return section("promotion", "Promote it", [more, *[command(_command(run, name, places)) for name in targets]])


def refusals(decision: Decision | None) -> list[str]:
    """Why promoting would be refused, a reason a line; none for a run that may serve."""
    if decision is None:
        return ["the run has no decision yet"]
    if decision.arm is None:
        return [f"there is nothing to promote: {decision.sentence}"]
    return [refusal.words() for refusal in of_evidence(decision)]


def _targets(deploy: Path) -> tuple[list[str], str]:
    """Names of targets; where there are none, the usual one and what is missing."""
    try:
        return list(load_deploy(deploy).targets), ""
    except InputError as error:
        missing = f"{deploy} does not exist yet: it names the targets (docs/promotion.md). "
        return ["local"], f"{error}. " if deploy.exists() else missing


def _command(run: Run, target: str, places: Places) -> str:
    words = ["orchestrate", "promote", run.name, "--to", target]
    words += ["--runs", str(places.runs)] if places.runs != RUNS.resolve() else []
    words += ["--deploy", str(places.deploy)] if places.deploy != DEPLOY else []
    return shlex.join(words)
