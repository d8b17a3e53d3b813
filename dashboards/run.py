"""A stored run as report and pages need it. What is damaged is left out and named; the rest is still shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import pandas as pd

from dashboards.figures.slots import minutes_after, run_start
from dashboards.theme import ArmKey, ArmStyle, arm_styles
from orchestrator.damage import Reading
from orchestrator.errors import InputError
from orchestrator.index import KEYS, open_index
from orchestrator.outputs import Outputs
from orchestrator.records import REQUEST_COLUMNS, Decision, Divergence, DraftTrees, JournalEntry, Look, TrialRecord
from orchestrator.spec import SweepSpec
from orchestrator.store import RunStore

T = TypeVar("T")


@dataclass(frozen=True)
class Run:
    """Everything a run's folder says: requests, goodput and depths as orchestrator.index.Index has them, telemetry with
    arm, slot and minutes since the first trial began, `trees` by arm. `problems`: a line for each file that could not
    be read."""

    name: str
    sweep_text: str
    spec: SweepSpec | None
    environment: dict[str, Any]
    entries: list[JournalEntry]
    looks: list[Look]
    trials: list[TrialRecord]
    requests: pd.DataFrame
    telemetry: pd.DataFrame
    goodput: pd.DataFrame
    depths: pd.DataFrame
    trees: dict[str, DraftTrees]
    outputs: Outputs | None
    divergences: pd.DataFrame
    decision: Decision | None
    styles: dict[str, ArmStyle]
    problems: list[str]


def load_run(store: RunStore) -> Run:
    """Read a run. InputError when the folder holds none."""
    if not (store.folder / "sweep.yaml").is_file():
        raise InputError(f"{store.folder}: no run here (sweep.yaml is missing)")
    reading = Reading()
    attempt = reading.attempt
    index = open_index(store)
    trials = [trial for trial in index.trials if _begun(trial, reading)]
    decision: Decision | None = attempt("decision.json", store.decision, None)
    spec: SweepSpec | None = attempt("sweep.yaml", lambda: store.sweep(SweepSpec), None)
    divergences = attempt("equivalence.parquet", lambda: _divergences(store), _no_divergences())
    return Run(
        name=store.folder.resolve().name,
        sweep_text=(store.folder / "sweep.yaml").read_text(encoding="utf-8", errors="replace"),
        spec=spec,
        environment=attempt("environment.json", store.environment, {}),
        entries=attempt("journal.jsonl", store.entries, []),
        looks=attempt("looks.jsonl", store.looks, []),
        trials=trials,
        requests=index.requests.reindex(columns=[*KEYS, *REQUEST_COLUMNS]),
        telemetry=_placed(index.telemetry, trials),
        goodput=index.goodput,
        depths=index.depths,
        trees=_trees(store, trials, attempt),
        outputs=attempt("outputs.json", store.outputs, None),
        divergences=divergences,
        decision=decision,
        styles=arm_styles(_arm_keys(spec, decision, trials, divergences["arm"])),
        problems=[*reading.problems, *index.problems],
    )


def _arm_keys(
    spec: SweepSpec | None, decision: Decision | None, trials: list[TrialRecord], others: Iterable[str]
) -> list[ArmKey]:
    """Every arm that the run mentions, described by the first source that knows it."""
    keys: dict[str, ArmKey] = {}
    for summary in decision.summaries if decision else []:
        keys.setdefault(summary.arm, ArmKey(summary.arm, summary.method, summary.budget))
    for arm in spec.expanded_arms() if spec else []:
        keys.setdefault(arm.label(), ArmKey(arm.label(), arm.method.value, arm.budget))
    for trial in trials:
        budget = trial.identity.get("budget")
        method = str(trial.identity.get("method", ""))
        keys.setdefault(trial.arm, ArmKey(trial.arm, method, budget if isinstance(budget, int) else None))
    comparisons = [c for point in decision.points for c in point.comparisons] if decision else []
    gates = decision.gates if decision else []
    for name in [*others, *(c.arm for c in comparisons), *(c.baseline for c in comparisons), *(g.arm for g in gates)]:
        keys.setdefault(name, ArmKey(name, "", None))
    return list(keys.values())


def _divergences(store: RunStore) -> pd.DataFrame:
    path = store.folder / "equivalence.parquet"
    if not path.exists():
        return _no_divergences()
    frame = _checked(pd.read_parquet(path), Divergence.model_fields)
    for row in frame.to_dict("records"):
        Divergence.model_validate(row)
    return frame


def _begun(trial: TrialRecord, reading: Reading) -> bool:
    """Whether its record says when it began: without that it has no place in time."""
    what = f"trial {trial.digest[:12]}, trial.json"
    return reading.attempt(what, lambda: run_start([trial]) is not None, False)


def _placed(telemetry: pd.DataFrame, trials: list[TrialRecord]) -> pd.DataFrame:
    """Telemetry with each trial's arm and slot, and minutes since the first trial began."""
    if "time" not in telemetry or not trials:
        return pd.DataFrame()
    start = run_start(trials)
    places = pd.DataFrame(
        [(t.digest, t.arm, t.slot, minutes_after(start, t)) for t in trials],
        columns=["trial", "arm", "slot", "minutes"],
    )
    frame = telemetry.merge(places, on="trial")
    return frame.assign(minutes=frame["minutes"] + frame["time"] / 60)


def _trees(store: RunStore, trials: list[TrialRecord], attempt: Callable[..., Any]) -> dict[str, DraftTrees]:
    """By arm, of the trial that recorded some."""
    found: dict[str, DraftTrees] = {}
    for trial in trials:
        what = f"trial {trial.digest[:12]}, trees.json"
        trees = attempt(what, partial(store.trials.trees, trial.digest), None) if trial.block == 0 else None
        if trees is not None:
            found.setdefault(trial.arm, trees)
    return found


def _checked(frame: pd.DataFrame, columns: Iterable[str]) -> pd.DataFrame:
    missing = [column for column in columns if column not in frame]
    if missing:
        raise ValueError(f"lacks the columns {', '.join(missing)}")
    return frame


def _no_divergences() -> pd.DataFrame:
    return pd.DataFrame(columns=list(Divergence.model_fields))
