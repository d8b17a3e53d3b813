"""Runs a plan: hands units to free slots, stores each trial as it comes, and outlives the death of anything below it.

A unit stays on one slot and keeps its order, because its trials are paired. A trial that does not count is run once
more on a fresh engine; how it ends then is stored, and the sweep goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import Console

from orchestrator.cluster import Choice
from orchestrator.errors import InputError
from orchestrator.measure import Measurement
from orchestrator.plan import Plan, Trial, Unit
from orchestrator.pool import SlotHandle, open_slots
from orchestrator.progress import Progress
from orchestrator.records import JournalEntry, TrialState
from orchestrator.store import RunStore, now
from orchestrator.validity import Limits

ATTEMPTS = 2
_WATCH_S = 1.0


def run_sweep(plan: Plan, store: RunStore, choice: Choice, console: Console, limits: Limits | None = None) -> None:
    """Measure every trial of the plan that the store does not hold as valid. Inside `connect` and `store.lock`.

    KeyboardInterrupt, after everything was stopped and the way to resume was printed; InputError when the run's
    folder cannot be written.
    """
    units = remaining(plan, store.finished())
    total, left = len(plan.trials), sum(len(unit.trials) for unit in units)
    if not units:
        return
    with Progress(console, total, total - left) as progress:
        try:
            asyncio.run(_Sweep(store, units, progress).run(choice, limits or Limits()))
        except KeyboardInterrupt:
            progress.say(
                f"stopped; {len(store.finished())} of {total} trials are stored: --resume goes on with the rest"
            )
            raise


def remaining(plan: Plan, finished: set[str]) -> list[Unit]:
    """The units with what they still have to measure, in the plan's order."""
    units = [replace(u, trials=tuple(t for t in u.trials if t.digest not in finished)) for u in plan.units]
    return [unit for unit in units if unit.trials]


class _Sweep:
    def __init__(self, store: RunStore, units: Sequence[Unit], progress: Progress) -> None:
        self._store = store
        self._units = deque(units)
        self._progress = progress
        self._current: dict[str, Trial] = {}

    async def run(self, choice: Choice, limits: Limits) -> None:
        async with open_slots(choice, min(choice.slots, len(self._units)), limits, self._progress.say) as slots:
            watcher = asyncio.create_task(self._watch(slots))
            workers = [asyncio.create_task(self._work(slot)) for slot in slots]
            try:
                await asyncio.gather(*workers)
            finally:
                for task in (watcher, *workers):
                    task.cancel()
                await asyncio.gather(watcher, *workers, return_exceptions=True)

    async def _work(self, slot: SlotHandle) -> None:
        while self._units:
            for trial in self._units.popleft().trials:
                self._current[slot.label] = trial
                await self._trial(slot, trial)
        self._current.pop(slot.label, None)

    async def _trial(self, slot: SlotHandle, trial: Trial) -> None:
        began = time.monotonic()
        for attempt in range(1, ATTEMPTS + 1):
            self._journal(slot, trial, TrialState.STARTED)
            self._progress.slot(slot.label, trial, "starting", time.time())
            measurement = await slot.run(trial)
            if measurement.record.state is TrialState.VALID or attempt == ATTEMPTS:
                self._store_trial(slot, trial, measurement, time.monotonic() - began)
                return
            self._journal(slot, trial, measurement.record.state, measurement.record.reason)
            self._progress.again(measurement)

    def _store_trial(self, slot: SlotHandle, trial: Trial, measurement: Measurement, seconds: float) -> None:
        record = measurement.record
        with _writing(self._store):
            self._store.write_trial(
                record,
                measurement.requests,
                measurement.telemetry,
                measurement.counters,
                measurement.stages,
                measurement.engine_log,
            )
        self._journal(slot, trial, record.state, record.reason, seconds)
        self._progress.finished(measurement, seconds)

    def _journal(
        self, slot: SlotHandle, trial: Trial, state: TrialState, reason: str = "", seconds: float = 0.0
    ) -> None:
        entry = JournalEntry(
            time=now(),
            trial=trial.digest,
            arm=trial.arm.name,
            concurrency=trial.concurrency,
            block=trial.block,
            state=state,
            slot=slot.name,
            reason=reason,
            seconds=seconds,
        )
        with _writing(self._store):
            self._store.journal(entry)

    async def _watch(self, slots: Sequence[SlotHandle]) -> None:
        """Ask the slots what they are doing, where somebody watches."""
        import ray

        while self._progress.live:
            await asyncio.sleep(_WATCH_S)
            for slot in slots:
                with contextlib.suppress(ray.exceptions.RayError):
                    activity = await slot.activity()
                    self._progress.slot(slot.label, self._current.get(slot.label), activity.what, activity.since)


@contextlib.contextmanager
def _writing(store: RunStore) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"{store.folder}: cannot be written: {reason}; make room, then --resume goes on") from error
