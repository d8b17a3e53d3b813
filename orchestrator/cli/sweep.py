"""`orchestrate sweep` and `orchestrate plan`."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.options import RUNS, Json, Overrides, Profile, Runs, SweepFile

if TYPE_CHECKING:
    from orchestrator.deployments import Place
    from orchestrator.explore import Field
    from orchestrator.models import ResolvedModel
    from orchestrator.plan import Plan
    from orchestrator.records import Probe
    from orchestrator.spec import EngineSpec, SweepSpec
    from orchestrator.store import RunStore


def sweep(
    file: SweepFile,
    profile: Profile = "auto",
    overrides: Overrides = None,
    runs: Runs = RUNS,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with this sweep's run.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure again beside an earlier run.")] = False,
    address: Annotated[str | None, typer.Option(envvar="RAY_ADDRESS", help="A running Ray cluster.")] = None,
    as_json: Json = False,
) -> None:
    """Measure every arm of FILE, decide, and write a report."""
    from rich.console import Console

    from dashboards.report import write_report
    from orchestrator import models
    from orchestrator.cli.tables import summary_table
    from orchestrator.cluster import choose_profile, connect
    from orchestrator.deployments import installed
    from orchestrator.explore import Explorer
    from orchestrator.plan import thin_points
    from orchestrator.search import with_finalists
    from orchestrator.spec import load_spec
    from orchestrator.sweep import run
    from orchestrator.verdict import exit_code

    console = Console(stderr=as_json)
    spec = load_spec(file, overrides)
    with connect(address) as cluster:
        choice = choose_profile(spec, profile, cluster.offers())
        console.print(choice.line, highlight=False, soft_wrap=True)
        probes: list[Probe] = []
        if spec.search is not None:
            with _told_of(file):
                field = _field(spec, choice.profile, models.resolve, installed)
            searched = _open_run(runs / f"{_slug(file)}-search-{field.digest[:12]}", resume, fresh)
            probes = Explorer(field, searched, choice).run(console)
            spec = with_finalists(spec, probes)
        with _told_of(file):
            plan = _plan(spec, choice.profile, models.resolve, installed)
        for note in thin_points(plan):
            console.print(note, highlight=False, soft_wrap=True)
        store = _open_run(runs / f"{_slug(file)}-{plan.digest[:12]}", resume, fresh)
        decision = run(plan, store, choice, console, probes)
    report = write_report(store, store.folder / "report.html")
    console.print(f"\n[bold]{decision.sentence}[/bold]", highlight=False)
    console.print(summary_table(decision))
    console.print(f"report: {report}", highlight=False, soft_wrap=True)
    if as_json:
        typer.echo(decision.model_dump_json(indent=2))
    raise typer.Exit(exit_code(decision))


def plan(
    file: SweepFile,
    profile: Profile = "auto",
    overrides: Overrides = None,
    tok_s: Annotated[float, typer.Option(min=0.1, help="Assumed tokens/s of one request, for the estimate.")] = 40.0,
    start_s: Annotated[float, typer.Option(min=0.0, help="Assumed seconds of an engine start, likewise.")] = 60.0,
    as_json: Json = False,
) -> None:
    """Show what a sweep of FILE would run, without starting anything."""
    from rich.console import Console

    from orchestrator.cli.tables import plan_table
    from orchestrator.cluster import choose_profile, this_machine
    from orchestrator.deployments import promised
    from orchestrator.plan import thin_points
    from orchestrator.spec import load_spec

    spec = load_spec(file, overrides)
    if profile == "auto":
        choice = choose_profile(spec, profile, this_machine())
        profile, line = choice.profile, choice.line
    else:
        line = f"profile {profile}: as asked for"
    with _told_of(file):
        planned = _plan(spec, profile, _resolve_or_note, promised)
    summary = _summary(planned, tok_s, start_s)
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
        return
    console = Console()
    console.print(line, highlight=False, soft_wrap=True)
    for note in (*_not_here(planned), *thin_points(planned)):
        console.print(note, highlight=False, soft_wrap=True)
    console.print(plan_table(planned))
    if spec.search is not None:
        minutes = spec.search.budget_gpu_minutes
        console.print(f"a search of {minutes:g} GPU-minutes first; its trees join these arms", highlight=False)
    console.print(
        f"{_at_most(planned)}{summary['trials']} trials of {summary['requests_per_arm']} requests an arm in "
        f"{summary['max_blocks']} blocks{' with new engines for each' if spec.blocks.restart else ''}; on one slot "
        f"{summary['starts']} engine starts and at most {summary['slot_hours']:.2f} hours at {tok_s:g} tok/s a request "
        f"and {start_s:g} s a start (assumptions: --tok-s, --start-s), the equivalence gate's apart",
        highlight=False,
    )


@contextlib.contextmanager
def _told_of(file: Path) -> Iterator[None]:
    """What the sweep file asks for and cannot be had is told with its name."""
    from orchestrator.errors import InputError, ModelMissingError

    try:
        yield
    except ModelMissingError:
        raise
    except InputError as error:
        raise InputError(f"{file}: {error}") from error


def _plan(
    spec: SweepSpec, profile: str, resolve: Callable[[str], ResolvedModel], find: Callable[[str, EngineSpec], Place]
) -> Plan:
    from orchestrator.deployments import make_deployments
    from orchestrator.errors import InputError
    from orchestrator.plan import make_plan
    from orchestrator.prompts import load_prompts

    if profile not in spec.profiles:
        raise InputError(f"no profile {profile!r}; the file has {', '.join(spec.profiles)}")
    prompts = load_prompts(spec.workload.prompts)
    return make_plan(spec, profile, make_deployments(spec, profile, resolve, find), prompts)


def _field(
    spec: SweepSpec, profile: str, resolve: Callable[[str], ResolvedModel], find: Callable[[str, EngineSpec], Place]
) -> Field:
    from orchestrator.deployments import make_deployments
    from orchestrator.explore import Field
    from orchestrator.prompts import load_prompts
    from orchestrator.search import reach

    assert spec.search is not None
    prompts = load_prompts(spec.workload.prompts).prompts[: spec.search.prompts]
    return Field(spec, spec.profiles[profile], make_deployments(reach(spec), profile, resolve, find), prompts)


def _not_here(plan: Plan) -> list[str]:
    """A line for each environment that the sweep needs and this machine lacks."""
    from engines.envs import ENVIRONMENTS

    names = {deployment.interpreter: deployment.software for deployment in plan.deployments.values()}
    return [
        f"environment {name} is not installed here and planned as its pins say ({names[name]}); before the sweep, run: "
        f"orchestrate engines install {name}"
        for name in sorted(names.keys() & ENVIRONMENTS.keys())
    ]


def _resolve_or_note(ref: str) -> ResolvedModel:
    """The model, or a stand-in that says it is not here: a plan can be looked at before anything is fetched."""
    from orchestrator import models
    from orchestrator.errors import ModelMissingError

    try:
        return models.resolve(ref)
    except ModelMissingError:
        return models.ResolvedModel(name=ref, path=Path("not-fetched"), digest="not-fetched")


def _slug(file: Path) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", file.stem)


def _open_run(folder: Path, resume: bool, fresh: bool) -> RunStore:
    from orchestrator.errors import InputError
    from orchestrator.store import RunStore

    store = RunStore(folder)
    if not store.entries():
        return store
    if fresh:
        numbers = itertools.count(2)
        return next(s for n in numbers if not (s := RunStore(folder.with_name(f"{folder.name}-{n}"))).folder.exists())
    if not resume:
        raise InputError(f"{store.folder}: this sweep has a run; --resume goes on with it, --fresh measures again")
    return store


def _at_most(plan: Plan) -> str:
    """What an adaptive sweep begins with."""
    blocks = plan.spec.blocks
    if blocks.max == blocks.count:
        return ""
    first = sum(len(unit.trials) for unit in plan.units if unit.block < blocks.count)
    return f"{first} trials in {blocks.count} blocks first, then {blocks.step} blocks at a time as needed: at most "


def _summary(plan: Plan, tok_s: float, start_s: float) -> dict[str, float | int | str | list[str]]:
    from orchestrator import estimate

    blocks = plan.spec.blocks
    return {
        "profile": plan.profile,
        "arms": [arm.name for arm in plan.arms],
        "prompt_set": f"{plan.prompt_set.name}@{plan.prompt_set.version[:12]}",
        "blocks": blocks.count,
        "max_blocks": blocks.max,
        "restart": blocks.restart,
        "concurrency": ", ".join(map(str, plan.spec.workload.concurrency)),
        "requests_per_arm": sum(len(t.prompts) for t in plan.trials) // len(plan.arms),
        "trials": len(plan.trials),
        "starts": estimate.engine_starts(plan),
        "slot_hours": estimate.hours(plan, tok_s, start_s),
        "digest": plan.digest,
    }
