"""The report of a run: one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import plotly.graph_objects as go
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from dashboards import explain, servers, text
from dashboards.equivalence import NOTE, passages, worst
from dashboards.facts import flatten
from dashboards.figures import divergence_gaps
from dashboards.run import Run, load_run
from dashboards.story import Plate, chapters
from dashboards.table import arm_groups, progress, unsettled
from dashboards.theme import STAGES
from engines.base import Method
from orchestrator.errors import InputError
from orchestrator.records import TrialState
from orchestrator.store import RunStore, write_text

_MOST_PASSAGES = 40


def write_report(store: RunStore, path: Path) -> Path:
    """Write the run's report to `path`. Damaged files are named on the page; InputError when there is no run or the
    report cannot be written."""
    page = render(load_run(store))
    try:
        write_text(path, page)
    except OSError as error:
        raise InputError(f"{path}: the report cannot be written: {error.strerror}") from error
    return path


def render(run: Run) -> str:
    """The page. Every text of the run is untrusted: Jinja escapes it, and only the page's own scripts may run."""
    environment = Environment(
        loader=PackageLoader("dashboards"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        name: getattr(text, name) for name in ("tok_s", "ms", "stage_ms", "tokens", "ratio", "percent", "bounds")
    }
    environment.globals |= {name: getattr(text, name) for name in ("count", "tok_s", "tokens", "ratio", "percentile")}
    divergences = worst(run.divergences, _MOST_PASSAGES)
    scripts = [get_plotlyjs(), asset("app/assets/figures.js")]
    return environment.get_template("report.html.j2").render(
        run=run,
        decision=run.decision,
        headline=explain.headline(run),
        won=explain.winner(run.decision) if run.decision else None,
        judged=explain.judged(run.decision) if run.decision else None,
        reasons=explain.reasons(run),
        groups=arm_groups(run),
        unsettled=unsettled(run),
        progress=progress(run),
        chapters=chapters(run),
        gap_plate=gap_plate(run),
        equivalence_note=NOTE,
        passages=list(zip(divergences, passages(divergences, run.requests, references(run)), strict=True)),
        bad_trials=[trial for trial in run.trials if trial.state is not TrialState.VALID],
        environment=list(flatten(run.environment)),
        servers=servers.words(run),
        command=_command(run),
        style=Markup(asset("templates/report.css")),  # noqa: S704  # a file of ours
        scripts=[Markup(script) for script in scripts],  # noqa: S704  # Plotly's and ours
        policy=_policy(scripts),
        embed=embed,
        stages=list(STAGES),
    )


def embed(figure: go.Figure) -> Markup:
    """A figure as JSON that cannot end the script element it stands in."""
    data = str(figure.to_json())
    for character in "<>&":
        data = data.replace(character, f"\\u{ord(character):04x}")
    return Markup(data)  # noqa: S704  # the three characters that mean something to HTML are gone


def gap_plate(run: Run) -> Plate | None:
    """The figure of the first divergences; None where there are none."""
    if run.divergences.empty:
        return None
    near_tie = max((gate.near_tie_gap for gate in run.decision.gates), default=0.0) if run.decision else 0.0
    caption = (
        "Each mark is the first token where a text departs from plain decoding’s; open marks are near-ties, filled "
        "ones violations."
    )
    figure = divergence_gaps(run.divergences, run.styles, near_tie)
    return Plate("gaps", "How close the calls were", caption, figure, wide=True)


def references(run: Run) -> dict[str, str]:
    """The arm that decodes plainly on each arm's engine: the baseline where there are several."""
    if run.decision is None:
        return {}
    plain: dict[str, str] = {}
    for summary in run.decision.summaries:
        if summary.method == Method.AUTOREGRESSIVE and plain.get(summary.engine) != run.decision.baseline:
            plain[summary.engine] = summary.arm
    return {s.arm: plain[s.engine] for s in run.decision.summaries if s.engine in plain}


def _command(run: Run) -> str:
    return f"orchestrate sweep {shlex.quote(f'runs/{run.name}/sweep.yaml')}"


def _policy(scripts: Sequence[str]) -> str:
    """A content security policy that runs these scripts, loads nothing and talks to nobody."""
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{value}'" for value in hashes)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"


def asset(path: str) -> str:
    """A script or style sheet of this package."""
    return (files("dashboards") / path).read_text(encoding="utf-8")
