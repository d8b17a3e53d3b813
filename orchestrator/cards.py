"""A run in one line: what a list of runs shows, read from the few small files at the top of a run's folder."""

from __future__ import annotations

import contextlib
import fcntl
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import ValidationError

from orchestrator.errors import InputError
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
from orchestrator.store import RunStore, read_record, write_text

T = TypeVar("T")

DAMAGE = (InputError, OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError)
"""What reading a damaged file raises."""

_FORMAT = 1
_FILES = ("sweep.yaml", "environment.json", "journal.jsonl", "decision.json")
_CARD = "card.json"


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


class Kept(Record):
    """A card and what its run looked like when it was read."""

    stamp: str
    card: Card


class Shelf:
    """The cards of a folder of runs. A card is kept in memory and, once decided, beside its run, and is read again
    only when one of the run's files changed."""

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self._kept: dict[str, Kept] = {}

    def names(self) -> list[str]:
        """Folders that hold a run. A link is not followed: it may lead out of the folder of runs."""
        with contextlib.suppress(OSError):
            folders = [path for path in self._runs.iterdir() if path.name[0] != "." and not path.is_symlink()]
            return sorted(path.name for path in folders if (path / "sweep.yaml").is_file())
        return []

    def store(self, name: str) -> RunStore:
        """The run called `name`. InputError unless it is one of `names`."""
        if name not in self.names():
            raise InputError(f"no run {name!r} in {self._runs}")
        return RunStore(self._runs / name)

    def card(self, name: str) -> Card:
        """A run's card. InputError when there is no such run."""
        return self._card(self.store(name))

    def cards(self) -> list[Card]:
        """All runs, the newest first."""
        found = [self._card(RunStore(self._runs / name)) for name in self.names()]
        return sorted(found, key=lambda card: card.started, reverse=True)

    def _card(self, store: RunStore) -> Card:
        name = store.folder.name
        stamp = stamp_of(store)
        kept = self._kept.get(name) or _stored(store)
        if kept is None or kept.stamp != stamp:
            kept = write_card(store)
        self._kept[name] = kept
        return kept.card


def write_card(store: RunStore) -> Kept:
    """Read a run's card and, once the run is decided, keep it beside the run. A folder that cannot be written costs the
    next reader some time and nothing else."""
    kept = Kept(stamp=stamp_of(store), card=read_card(store))
    if kept.card.verdict is not None:
        with contextlib.suppress(OSError):
            (store.folder / "index").mkdir(exist_ok=True)
            write_text(store.folder / "index" / _CARD, kept.model_dump_json())
    return kept


def stamp_of(store: RunStore) -> str:
    """Changes whenever the run's journal, decision or description does."""
    return f"{_FORMAT}/" + " ".join(_mark(store.folder / name) for name in _FILES)


def is_running(store: RunStore) -> bool:
    """Whether a sweep holds the run now. Looks only at an open run, and for microseconds: a sweep that starts just
    then would find the run taken."""
    lock, decision = store.folder / ".lock", store.folder / "decision.json"
    try:
        if decision.exists() and decision.stat().st_mtime_ns > lock.stat().st_mtime_ns:
            return False
        with lock.open("rb") as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def read_card(store: RunStore) -> Card:
    """A card from the run's files; what is damaged is left out and named."""
    problems: list[str] = []

    def attempt(what: str, read: Callable[[], T], otherwise: T) -> T:
        try:
            return read()
        except DAMAGE as error:
            problems.append(complaint(what, error))
            return otherwise

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
        problems=problems,
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


def complaint(what: str, error: Exception) -> str:
    """A damaged file in one line."""
    text = str(error)
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        text = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    line = text.splitlines()[0] if text else type(error).__name__
    # Errors of the store begin with the file's whole path.
    return line[line.index(what) :] if what in line else f"{what}: {line}"


def _mark(path: Path) -> str:
    try:
        status = path.stat()
    except OSError:
        return "-"
    return f"{status.st_mtime_ns}:{status.st_size}"


def _stored(store: RunStore) -> Kept | None:
    with contextlib.suppress(*DAMAGE):
        return read_record(store.folder / "index" / _CARD, Kept)
    return None


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
    path = next(iter(sorted(store.trials_folder.glob("[!.]*/trial.json"))), None) if len(profiles) > 1 else None
    if path:
        told = read_record(path, TrialRecord).identity
        engine = str(told.get("engine"))
        profiles = [p for p in profiles if engine in p.engines and p.engines[engine].device == told.get("device")]
    return sorted({profile.models.target for profile in profiles})


def _gpus(store: RunStore) -> list[str]:
    """Names of the driver machine's GPUs; none for a run on the CPU."""
    cards = store.environment().get("gpus", [])
    return sorted({str(card["name"]) for card in cards})
