"""Runs a plan: hands units to free slots, stores each trial as it comes, and outlives the death of anything below it.

A unit stays on one slot and keeps its order, because its trials are paired. A trial that does not count is run once
more, on a fresh engine unless only the machine was disturbed; how it ends then is stored, and the sweep goes on. A slot
that is lost for good leaves the rest of its unit to the others. With `blocks.restart` no engine outlives its block,
and slots take whole blocks.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from rich.console import Console
from rich.text import Text

from orchestrator.cluster import Choice
from orchestrator.errors import InputError
from orchestrator.looks import next_round
from orchestrator.measure import Measurement
from orchestrator.plan import Plan, Trial, Unit
from orchestrator.pool import SlotHandle, SlotLostError, open_slots
from orchestrator.progress import Progress
from orchestrator.records import JournalEntry, TrialState
from orchestrator.rounds import count, due, next_of_blocks, remaining
from orchestrator.store import RunStore, writing
from orchestrator.times import now
from orchestrator.validity import Limits

ATTEMPTS = 2
TELLING_UNITS = 2
"""A sweep ends when no trial of so many units at its beginning came to a measurement."""

_WATCH_S = 1.0

More = Callable[[Callable[[str], None]], list[Unit]]


def run_sweep(plan: Plan, store: RunStore, choice: Choice, console: Console, limits: Limits | None = None) -> None:
    """Measure every trial due so far that the store does not hold as valid. Inside `connect` and `store.lock`.

    KeyboardInterrupt, after everything was stopped and the way to resume was printed. InputError when the run's folder
    cannot be written, every trial of the first units failed, or every slot was lost.
    """
    planned = due(plan, store.looks())
    left, restart = remaining(planned, store.finished()), plan.spec.blocks.restart
    measure_units(store, choice, console, left, count(planned), limits=limits, restart=restart)


def add_blocks(
    plan: Plan,
    store: RunStore,
    choice: Choice,
    console: Console,
    failed: Mapping[str, str],
    limits: Limits | None = None,
) -> None:
    """Look at what was measured, add blocks where more are needed, and so on until they are not. As `run_sweep`.

    `failed`: arms that did not pass the equivalence gate, with the reason.
    """
    more = partial(next_round, plan, store, failed)
    units = more(lambda line: console.print(Text(line), soft_wrap=True))
    planned, restart = count(due(plan, store.looks())), plan.spec.blocks.restart
    measure_units(store, choice, console, units, planned, more, limits, restart)


def measure_units(
    store: RunStore,
    choice: Choice,
    console: Console,
    units: Sequence[Unit],
    total: int,
    more: More = lambda _: [],
    limits: Limits | None = None,
    restart: bool = False,
) -> None:
    """Measure units, and those that `more` adds when they are done. `total`: trials, with those measured before.

    `more` is given where to say why. `restart`: as in `BlockSpec`. Errors as `run_sweep`.
    """
    if not units:
        return
    with Progress(console, total, total - count(units)) as progress:
        try:
            asyncio.run(_Sweep(store, choice, units, progress, more, restart).run(limits or Limits()))
        except KeyboardInterrupt:
            done = f"{len(store.finished())} of {progress.total}"
            progress.say(f"stopped; {done} trials are stored: --resume goes on with the rest")
            raise


class _Sweep:
    def __init__(
        self, store: RunStore, choice: Choice, units: Sequence[Unit], progress: Progress, more: More, restart: bool
    ) -> None:
        self._store = store
        self._choice = choice
        self._units = deque(units)
        self._progress = progress
        self._more = more
        self._restart = restart
        self._blocks: dict[str, int] = {}
        """The block that each slot was last at; none before its first."""
        self._current: dict[str, Trial] = {}
        self._unfailed = {trial.digest for unit in units[:TELLING_UNITS] for trial in unit.trials}

    async def run(self, limits: Limits) -> None:
        most = min(self._choice.slots, len(self._units))
        async with open_slots(self._choice, most, limits, self._progress.say) as slots:
            watcher = asyncio.create_task(self._watch(slots))
            try:
                while self._units:
                    slots = await self._share(slots)
                    if not self._units:
                        self._units.extend(self._more(self._progress.say))
                        self._progress.grow(count(self._units))
            finally:
                watcher.cancel()
                await asyncio.gather(watcher, return_exceptions=True)

    async def _prepare(self, slot: SlotHandle, unit: Unit) -> None:
        """Start anew what will stay up for a unit: side by side, which its trials would do one by one. Where only one
        stays, its trial starts it. A slot's unit begins with other arms than its neighbour's. Who does not get ready is
        told of, and starts again when its turn comes.
        """
        self._progress.slot(slot.label, unit.trials[0], "starting the engines", time.time())
        staying = unit.trials if self._choice.resident > 1 else ()
        for line in await slot.prepare([(trial.arm, trial.deployment) for trial in staying]):
            self._progress.say(f"{slot.label}: {line}")

    async def _enter(self, slot: SlotHandle, unit: Unit) -> float:
        """Have what will stay up started before a slot's first trial, and leave nothing up from another block where
        nothing is to outlive its own. Seconds that it took, where it will come again.
        """
        began = time.monotonic()
        before, self._blocks[slot.label] = self._blocks.get(slot.label), unit.block
        begins = before is None and self._choice.resident > 1
        if begins or (self._restart and before not in (None, unit.block)):
            await self._prepare(slot, unit)
        return time.monotonic() - began if self._restart else 0.0

    async def _share(self, slots: Sequence[SlotHandle]) -> list[SlotHandle]:
        """Hand out the units until none is left. Returns the slots that are; a lost one has given its unit back."""
        workers = [asyncio.create_task(self._work(slot)) for slot in slots]
        try:
            reasons = await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        left = [slot for slot, reason in zip(slots, reasons, strict=True) if not reason]
        if not left:
            raise InputError(f"no slot is left: {slots[0].label}: {reasons[0]}; --resume goes on with the rest")
        return left

    async def _work(self, slot: SlotHandle) -> str:
        """Run units as long as there are any to take; what a slot leaves that is lost after this one is done
        comes with the next round of `_share`. Returns why the slot was lost; empty when it was not.
        """
        while unit := self._take(slot):
            for number, trial in enumerate(unit.trials):
                self._current[slot.label] = trial
                try:
                    await self._trial(slot, trial, await self._enter(slot, unit))
                except SlotLostError as error:
                    self._units.appendleft(replace(unit, trials=unit.trials[number:]))
                    self._lost(slot, trial, str(error))
                    return str(error)
        self._current.pop(slot.label, None)
        return ""

    def _take(self, slot: SlotHandle) -> Unit | None:
        """The slot's next unit; none when there is no more, or no more that it should do."""
        if not self._restart:
            return self._units.popleft() if self._units else None
        others = [block for label, block in self._blocks.items() if label != slot.label]
        unit = next_of_blocks(self._units, self._blocks.get(slot.label), others)
        if unit is not None:
            self._units.remove(unit)
        return unit

    def _lost(self, slot: SlotHandle, trial: Trial, reason: str) -> None:
        self._current.pop(slot.label)
        self._blocks.pop(slot.label)
        self._journal(slot, trial, TrialState.FAILED, reason)
        self._progress.slot(slot.label, None, "lost", time.time())
        self._progress.say(f"lost: {slot.label}: {reason}")

    async def _trial(self, slot: SlotHandle, trial: Trial, waited: float) -> None:
        """`waited`: seconds for the block's engines, which count as the trial's."""
        began = time.monotonic() - waited
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
        with writing(self._store.folder):
            self._store.trials.write(
                record,
                measurement.requests,
                measurement.telemetry,
                measurement.counters,
                measurement.stages,
                measurement.engine_log,
                measurement.trees,
            )
        self._journal(slot, trial, record.state, record.reason, seconds)
        self._progress.finished(measurement, seconds)
        if measurement.requests.empty:
            self._unfailed.discard(trial.digest)
            self._give_up_if_hopeless(record.reason)

    def _give_up_if_hopeless(self, reason: str) -> None:
        if not self._unfailed and self._units:
            raise InputError(
                f"gave up: no trial of the first {TELLING_UNITS} units came to a measurement; the last one: {reason}; "
                "--resume tries again"
            )

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
        with writing(self._store.folder):
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
