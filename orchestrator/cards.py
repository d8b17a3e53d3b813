"""A run in one line: what a list of runs shows, read from the few small files at the top of a run's folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import yaml

from orchestrator.damage import Reading
from orchestrator.records import (
    Decision,
    Interval,
    JournalEntry,
    Look,
    PointDecision,
    Record,
    TrialRecord,
    TrialState,
    Verdict,
)
from orchestrator.rounds import planned as due
from orchestrator.spec import SweepSpec
from orchestrator.store import RunStore, read_record


class Progress(Record):
    """How far a run is, in trials. `planned` is None where the sweep file cannot be read. `doing` names what runs now,
    `seconds_left` is an estimate from the trials measured so far."""

    planned: int | None
    valid: int
    invalid: int
    failed: int
    doing: list[str]
    seconds_left: float | None

    @property
    def done(self) -> int:
        return self.valid + self.invalid + self.failed


class Card(Record):
    """One run in a list. `verdict` is None and `sentence` empty until the run is decided; `problems` has a line for
    each file that could not be read."""

    name: str
    question: str
    verdict: Verdict | None
    sentence: str
    arm: str | None
    baseline: str
    concurrency: int | None
    candidate: str | None
    speedup: Interval | None
    engines: list[str]
    models: list[str]
    gpus: list[str]
    started: str
    progress: Progress
    problems: list[str]


def read_card(store: RunStore) -> Card:
    """A card from the run's files; what is damaged is left out and named."""
    reading = Reading()
    attempt = reading.attempt
    spec: SweepSpec | None = attempt("sweep.yaml", lambda: _spec(store), None)
    decision: Decision | None = attempt("decision.json", store.decision, None)
    no_entries: list[JournalEntry] = []
    none: list[str] = []
    no_looks: list[Look] = []
    entries = attempt("journal.jsonl", store.entries, no_entries)
    started = entries[0].time if entries else ""
    point = _decided(decision)
    compared = next((c for c in point.comparisons if c.arm == point.candidate), None) if point else None
    return Card(
        name=store.folder.name,
        question=decision.question if decision else spec.question if spec else "",
        verdict=decision.verdict if decision else None,
        sentence=decision.sentence if decision else "",
        arm=decision.arm if decision else None,
        baseline=decision.baseline if decision else "",
        concurrency=decision.concurrency if decision else None,
        candidate=point.candidate if point else None,
        speedup=compared.speedup if compared else None,
        engines=_engines(spec, decision),
        models=attempt("trials", lambda: _models(store, spec), none),
        gpus=attempt("environment.json", lambda: _gpus(store), none),
        started=started,
        progress=progress(spec, entries, attempt("looks.jsonl", store.looks, no_looks)),
        problems=reading.problems,
    )


def progress(spec: SweepSpec | None, entries: Sequence[JournalEntry], looks: Sequence[Look] = ()) -> Progress:
    """How far a run is by its journal, among the blocks that are due after `looks`."""
    latest = {entry.trial: entry for entry in entries}
    states = Counter(entry.state for entry in latest.values())
    planned = None
    if spec:
        planned = sum(due(spec, looks).values())
    ended = [entry for entry in latest.values() if entry.state is not TrialState.STARTED]
    # A slot has one trial at a time: what it started before its last one was cut off.
    now = {entry.slot: entry for entry in entries}
    doing = [entry for entry in now.values() if entry.state is TrialState.STARTED]
    left = None
    if planned is not None and ended:
        mean = sum(entry.seconds for entry in ended) / len(ended)
        left = mean * max(planned - len(ended), 0) / max(len(doing), 1)
    return Progress(
        planned=planned,
        valid=states[TrialState.VALID],
        invalid=states[TrialState.INVALID],
        failed=states[TrialState.FAILED],
        doing=[f"{e.slot}: {e.arm}, block {e.block}, {e.concurrency} at once" for e in doing],
        seconds_left=left,
    )


def _spec(store: RunStore) -> SweepSpec:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = (store.folder / "sweep.yaml").read_text(encoding="utf-8")
    return SweepSpec.model_validate(yaml.load(text, Loader=loader))  # noqa: S506  # both loaders are safe ones


def _decided(decision: Decision | None) -> PointDecision | None:
    if decision is None:
        return None
    return next((point for point in decision.points if point.concurrency == decision.concurrency), None)


def _engines(spec: SweepSpec | None, decision: Decision | None) -> list[str]:
    if decision and decision.summaries:
        return sorted({summary.engine for summary in decision.summaries})
    return sorted({name for profile in spec.profiles.values() for name in profile.engines}) if spec else []


def _models(store: RunStore, spec: SweepSpec | None) -> list[str]:
    """Targets of the profiles that fit what a trial's server said it was; the store does not name the profile."""
    if spec is None:
        return []
    profiles = list(spec.profiles.values())
    path = next(iter(sorted(store.trials.folder.glob("[!.]*/trial.json"))), None) if len(profiles) > 1 else None
    if path:
        told = read_record(path, TrialRecord).identity
        engine = str(told.get("engine"))
        profiles = [p for p in profiles if engine in p.engines and p.engines[engine].device == told.get("device")]
    return sorted({profile.models.target for profile in profiles})


def _gpus(store: RunStore) -> list[str]:
    """Names of the driver machine's GPUs; none for a run on the CPU."""
    cards = store.environment().get("gpus", [])
    return sorted({str(card["name"]) for card in cards})
