"""A stored run as the report needs it. What is damaged is left out and named; the rest is still shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import pandas as pd
import yaml
from pydantic import ValidationError

from dashboards.figures.slots import run_start
from dashboards.theme import ArmKey, ArmStyle, arm_styles
from orchestrator.errors import InputError
from orchestrator.records import REQUEST_COLUMNS, Decision, Divergence, JournalEntry, TrialRecord
from orchestrator.spec import SweepSpec
from orchestrator.store import RunStore

T = TypeVar("T")

_DAMAGE = (InputError, OSError, ValueError, KeyError, TypeError, yaml.YAMLError)


@dataclass(frozen=True)
class Run:
    """Everything a run's folder says. `problems`: a line for each file that could not be read."""

    name: str
    sweep_text: str
    spec: SweepSpec | None
    environment: dict[str, Any]
    entries: list[JournalEntry]
    trials: list[TrialRecord]
    requests: pd.DataFrame
    telemetry: pd.DataFrame
    divergences: pd.DataFrame
    decision: Decision | None
    styles: dict[str, ArmStyle]
    problems: list[str]


def load_run(store: RunStore) -> Run:
    """Read a run. InputError when the folder holds none."""
    if not (store.folder / "sweep.yaml").is_file():
        raise InputError(f"{store.folder}: no run here (sweep.yaml is missing)")
    problems: list[str] = []

    def attempt(what: str, read: Callable[[], T], otherwise: T) -> T:
        try:
            return read()
        except _DAMAGE as error:
            problems.append(_complaint(store, what, error))
            return otherwise

    trials: list[TrialRecord] = attempt("trials", store.trials, [])
    decision: Decision | None = attempt("decision.json", store.decision, None)
    spec: SweepSpec | None = attempt("sweep.yaml", lambda: SweepSpec.model_validate(store.sweep()), None)
    divergences = attempt("equivalence.parquet", lambda: _divergences(store), _no_divergences())
    return Run(
        name=store.folder.resolve().name,
        sweep_text=(store.folder / "sweep.yaml").read_text(encoding="utf-8", errors="replace"),
        spec=spec,
        environment=attempt("environment.json", store.environment, {}),
        entries=attempt("journal.jsonl", store.entries, []),
        trials=trials,
        requests=attempt("requests.parquet of a trial", lambda: _requests(store), _no_requests()),
        telemetry=attempt("telemetry.parquet of a trial", lambda: _telemetry(store, trials), pd.DataFrame()),
        divergences=divergences,
        decision=decision,
        styles=arm_styles(_arm_keys(spec, decision, trials, divergences["arm"])),
        problems=problems,
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


def _requests(store: RunStore) -> pd.DataFrame:
    frame = store.requests()
    return _checked(frame, REQUEST_COLUMNS) if len(frame.columns) else _no_requests()


def _divergences(store: RunStore) -> pd.DataFrame:
    path = store.folder / "equivalence.parquet"
    return _checked(pd.read_parquet(path), Divergence.model_fields) if path.exists() else _no_divergences()


def _telemetry(store: RunStore, trials: list[TrialRecord]) -> pd.DataFrame:
    """All trials' telemetry with columns trial, arm, slot and minutes since the first trial began."""
    frames = []
    for trial in trials:
        frame = store.telemetry(trial.digest)
        if "time" in frame:
            offset = (datetime.fromisoformat(trial.started_at) - run_start(trials)).total_seconds()
            minutes = (frame["time"] + offset) / 60
            frames.append(frame.assign(trial=trial.digest, arm=trial.arm, slot=trial.slot, minutes=minutes))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def _checked(frame: pd.DataFrame, columns: Iterable[str]) -> pd.DataFrame:
    missing = [column for column in columns if column not in frame]
    if missing:
        raise ValueError(f"lacks the columns {', '.join(missing)}")
    return frame


def _no_requests() -> pd.DataFrame:
    return pd.DataFrame(columns=["trial", "arm", "concurrency", "block", *REQUEST_COLUMNS])


def _no_divergences() -> pd.DataFrame:
    return pd.DataFrame(columns=list(Divergence.model_fields))


def _complaint(store: RunStore, what: str, error: Exception) -> str:
    text = str(error).replace(f"{store.folder}/", "")
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        text = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    first_line = text.splitlines()[0] if text else type(error).__name__
    return first_line if first_line.startswith(what) else f"{what}: {first_line}"
