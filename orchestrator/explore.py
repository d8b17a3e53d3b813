"""Runs a search: probes on free slots until the minutes are spent, each written down as it comes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from engines.base import Deployment
from orchestrator.cluster import Choice
from orchestrator.driver import measure_units
from orchestrator.errors import InputError
from orchestrator.metrics import measure, tokens_within
from orchestrator.plan import Trial, Unit, make_trial
from orchestrator.prompts import Prompt
from orchestrator.records import Place, Probe, TrialState
from orchestrator.search import Searcher, front
from orchestrator.spec import ProfileSpec, SweepSpec
from orchestrator.store import RunStore, writing
from orchestrator.validity import Limits


@dataclass(frozen=True)
class Field:
    """What a search measures on: the prompts kept for it, the engines that can serve all of its ranges."""

    spec: SweepSpec
    profile: ProfileSpec
    deployments: Mapping[str, Deployment]
    prompts: tuple[Prompt, ...]

    def trial(self, place: Place) -> Trial:
        assert self.spec.search is not None
        arm = self.spec.search.arm(place.budget).resolved(self.profile.engine)
        deployment, accelerator = self.deployments[arm.engine], self.profile.match.accelerator
        return make_trial(self.spec, arm, deployment, accelerator, place.concurrency, 0, self.prompts)

    @property
    def digest(self) -> str:
        """Of everything that decides the search: its ranges, and what a trial in it is."""
        search = self.spec.search
        assert search is not None
        text = search.model_dump_json() + self.trial(Place(search.budget[0], self.spec.workload.concurrency[0])).digest
        return hashlib.sha256(text.encode()).hexdigest()


class Explorer:
    """A search on a field, and what it has found so far."""

    def __init__(self, field: Field, store: RunStore, choice: Choice) -> None:
        assert field.spec.search is not None
        self._field, self._search, self._store, self._choice = field, field.spec.search, store, choice
        self._searcher = Searcher(field.spec, store.probes())
        self._running: dict[str, Place] = {}

    def run(self, console: Console, limits: Limits | None = None) -> list[Probe]:
        """All probes, those of earlier sessions included. Inside `connect`. InputError when none came to a speed.

        The minutes are those of the slots' GPUs (of a slot on a CPU: its own), warm-ups and starts included, but for
        those of engines that stay up from the first probe on; the last probes may take some more.
        """
        with self._store.lock():
            first = self._next()
            total = len(self._store.finished()) + len(first)
            measure_units(self._store, self._choice, console, first, total, self._more, limits)
        probes = self._store.probes()
        if not front(probes):
            why = probes[-1].reason if probes else "the minutes were spent before the first"
            raise InputError(f"search: no probe came to a speed; the last one: {why}")
        best = ", ".join(f"{p.budget} at {p.concurrency}" for p in front(probes))
        console.print(Text(f"search: {len(probes)} probes; the front is budget {best}"), soft_wrap=True)
        return probes

    def _more(self, say: Callable[[str], None]) -> list[Unit]:
        for digest, place in self._running.items():
            probe = self._probe(digest, place)
            self._searcher.tell(probe)
            with writing(self._store.folder):
                self._store.probe(probe)
            say(_line(probe, self._spent(), self._search.budget_gpu_minutes))
        return self._next()

    def _next(self) -> list[Unit]:
        """As many probes as there are slots; none when the minutes are spent or nothing is left to ask."""
        self._running.clear()
        if self._spent() >= self._search.budget_gpu_minutes:
            return []
        asked = [self._searcher.ask() for _ in range(self._choice.slots)]
        units = [Unit(0, place.concurrency, (self._field.trial(place),)) for place in asked if place is not None]
        self._running |= {unit.trials[0].digest: place for unit, place in zip(units, filter(None, asked), strict=True)}
        return units

    def _spent(self) -> float:
        seconds = sum(entry.seconds for entry in self._store.entries())
        return seconds / 60 * max(1, self._choice.match.gpus)

    def _probe(self, digest: str, place: Place) -> Probe:
        """From what is stored of the trial."""
        record = self._store.trials.record(digest)
        if record is None or record.state is not TrialState.VALID:
            reason = record.reason if record else "its slot was lost"
            return Probe(
                budget=place.budget, concurrency=place.concurrency, tok_s_user=None, tok_s_all=None, reason=reason
            )
        measured = measure(self._store.trials.requests_of(digest))
        seconds = record.window[1] - record.window[0]
        tpot = float(measured["tpot"].mean())
        return Probe(
            budget=place.budget,
            concurrency=place.concurrency,
            tok_s_user=1 / tpot if tpot > 0 else None,
            tok_s_all=tokens_within(measured, record.window) / seconds,
            reason="" if tpot > 0 else "no answer had a second chunk",
        )


def _line(probe: Probe, spent: float, budget: float) -> str:
    head = f"probe of budget {probe.budget} at {probe.concurrency}"
    if probe.tok_s_user is None or probe.tok_s_all is None:
        return f"{head}: {probe.reason}"
    speeds = f"{probe.tok_s_user:.1f} tok/s a user, {probe.tok_s_all:.1f} in all"
    return f"{head}: {speeds}; {spent:.1f} of {budget:g} GPU-minutes"
