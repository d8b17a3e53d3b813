"""The driver with slots that answer from a script, without an engine, and with one slot and the fake engine: no Ray."""

import asyncio
import contextlib
import errno
import io
import itertools
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from engines.base import Arm, Deployment, Engine, SpecCounters
from orchestrator import driver, process
from orchestrator.cluster import Choice
from orchestrator.driver import run_sweep
from orchestrator.errors import InputError
from orchestrator.estimate import starts
from orchestrator.measure import Measurement, failed
from orchestrator.plan import Plan, Trial
from orchestrator.pool import SlotLostError
from orchestrator.records import TrialRecord, TrialState, request_frame
from orchestrator.rounds import remaining
from orchestrator.slots import Slot
from orchestrator.spec import dump_spec
from orchestrator.store import RunStore
from orchestrator.times import now
from tests.orchestrator.acting import ANY_LOAD, CHOICE, MATCH, deployment, plain, sweep_plan
from tests.orchestrator.processes import VARIABLE

ARMS = [plain(), {"method": "dflash"}, {"method": "ddtree", "budget": 7}]
Script = Callable[[Trial, int], Measurement]


def valid(trial: Trial) -> Measurement:
    record = failed(trial, "slot-0", "", now()).record
    whole = record.model_dump() | {"state": TrialState.VALID, "duration": 2.0, "window": (0.0, 2.0)}
    row: dict[str, Any] = {"prompt_id": "p", "sent": 0.0, "first": 0.5, "last": 2.0, "error": "", "output_tokens": 10}
    filler = {"task": "", "finish_reason": "stop", "text": "", "scheduled": 0.0}
    counts = (
        "first_chunk_tokens",
        "chunks",
        "prompt_tokens",
        "verify_steps",
        "drafted",
        "accepted",
        "emitted",
        "coalesced",
    )
    frame = request_frame([row | filler | dict.fromkeys((*counts, "cached_tokens"), 1)])
    return Measurement(TrialRecord(**whole), frame, pd.DataFrame(), SpecCounters(4, 28, 6, 10), None, engine_log=b"log")


class ScriptedSlot:
    """`prepares`: after how many trials, and for which arms. The prepare of number `lost_at` finds the slot lost."""

    def __init__(self, index: int, script: Script) -> None:
        self.label = self.name = f"slot-{index}"
        self._script = script
        self.seconds = 0.0
        self.ran: list[Trial] = []
        self.prepares: list[tuple[int, list[str]]] = []
        self.lost_at = -1

    async def prepare(self, arms: Sequence[tuple[Arm, Deployment]]) -> list[str]:
        names = [arm.name for arm, _ in arms]
        self.prepares.append((len(self.ran), names))
        if len(self.prepares) == self.lost_at:
            raise SlotLostError("gone while its engines started")
        return [f"{name} did not get ready beside the others: no memory" for name in names[-1:]]

    async def run(self, trial: Trial) -> Measurement:
        self.ran.append(trial)
        await asyncio.sleep(self.seconds)
        return self._script(trial, self.ran.count(trial))


class Bench:
    """A run folder and scripted slots under the driver. `seconds`: how long the last one takes for a trial."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, plan: Plan) -> None:
        self.plan = plan
        self.store = RunStore(folder / "run")
        self.store.create(dump_spec(plan.spec), {})
        self.output = io.StringIO()
        self.slots: list[ScriptedSlot] = []
        self.script: Script = lambda trial, _: valid(trial)
        self.count = self.resident = 1
        self.lost_at = -1
        self.seconds = 0.0
        monkeypatch.setattr(driver, "open_slots", self._open)

    @contextlib.asynccontextmanager
    async def _open(self, choice: Choice, *_: object) -> AsyncIterator[list[Any]]:
        self.slots = [ScriptedSlot(index, self.script) for index in range(self.count)]
        self.slots[-1].seconds, self.slots[-1].lost_at = self.seconds, self.lost_at
        yield self.slots

    def sweep(self) -> None:
        choice = replace(CHOICE, resident=self.resident)
        run_sweep(self.plan, self.store, choice, Console(file=self.output, width=200))

    def lose_slots_at(self, fatal: Trial, why: str, spared: int | None = None) -> None:
        """Whoever comes to this trial is lost, but for the slot `spared`."""

        def script(trial: Trial, _: int) -> Measurement:
            if trial == fatal and (spared is None or fatal not in self.slots[spared].ran):
                raise SlotLostError(why)
            return valid(trial)

        self.script = script

    @property
    def lines(self) -> list[str]:
        return self.output.getvalue().splitlines()


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch, sweep_plan(ARMS))


def test_trials_run_in_the_plans_order_and_are_stored(bench: Bench) -> None:
    bench.sweep()
    assert bench.slots[0].ran == list(bench.plan.trials)
    assert bench.store.finished() == {trial.digest for trial in bench.plan.trials}
    states = [entry.state for entry in bench.store.entries()]
    assert states == [TrialState.STARTED, TrialState.VALID] * 6


def test_slots_start_side_by_side_with_the_arms_that_they_measure_first_and_no_two_with_the_same(bench: Bench) -> None:
    bench.count = bench.resident = 2
    bench.sweep()
    orders = [[trial.arm.name for trial in slot.ran] for slot in bench.slots]
    assert [slot.prepares for slot in bench.slots] == [[(0, order)] for order in orders]
    assert all(one != other for one, other in zip(*orders, strict=True))
    last = {slot.label: order[-1] for slot, order in zip(bench.slots, orders, strict=True)}
    told = {f"{label}: {arm} did not get ready beside the others: no memory" for label, arm in last.items()}
    assert told <= set(bench.lines)


def block_plan(restart: bool, **changes: Any) -> Plan:
    return sweep_plan(ARMS, blocks={"count": 4, "seed": 5, "restart": restart}, **changes)


@pytest.mark.parametrize("restart", [True, False])
@pytest.mark.parametrize("resident", [1, 2])
def test_a_slot_that_goes_on_to_another_block_starts_its_engines_anew_where_that_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resident: int, restart: bool
) -> None:
    workload = {"prompts": {"count": 8}, "max_tokens": 12, "concurrency": [1, 2]}
    bench = Bench(tmp_path, monkeypatch, block_plan(restart, workload=workload))
    bench.resident = resident
    slow = SimpleNamespace(time=time.time, monotonic=lambda: 100.0 * sum(len(slot.prepares) for slot in bench.slots))
    monkeypatch.setattr(driver, "time", slow)
    bench.sweep()
    orders = [[trial.arm.name for trial in unit.trials] for unit in bench.plan.units]
    staying = [order if resident > 1 else [] for order in orders]
    first = [(0, staying[0])] if resident > 1 else []
    later = [(6 * block, staying[2 * block]) for block in (1, 2, 3)] if restart else []
    assert bench.slots[0].prepares == first + later, "both points of a block have the same engines"
    assert bench.slots[0].ran == list(bench.plan.trials)
    ended = [entry.seconds for entry in bench.store.entries() if entry.state is TrialState.VALID]
    waited = [after for after, _ in bench.slots[0].prepares] if restart else []
    assert [number for number, seconds in enumerate(ended) if seconds == 100] == waited, "what comes once is nobody's"
    assert sum(ended) == 100 * len(waited)


@pytest.mark.parametrize(("slots", "blocks_of_a_slot"), [(2, 2), (3, 2), (4, 1), (6, 1)])
def test_slots_whose_engines_start_anew_take_whole_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slots: int, blocks_of_a_slot: int
) -> None:
    workload = {"prompts": {"count": 8}, "max_tokens": 12, "concurrency": [1, 2]}
    bench = Bench(tmp_path, monkeypatch, block_plan(restart=True, workload=workload))
    bench.count = bench.resident = slots
    bench.sweep()
    assert bench.store.finished() == {trial.digest for trial in bench.plan.trials}
    at = [list(dict.fromkeys(trial.block for trial in slot.ran)) for slot in bench.slots]
    assert max(map(len, at)) == blocks_of_a_slot
    assert sum(map(len, at)) == max(4, slots), "a block is divided only where there are more slots than blocks"
    assert [len(slot.prepares) for slot in bench.slots] == list(map(len, at))


def changes_of_block(slot: ScriptedSlot) -> list[int]:
    return [n for n, (one, next_) in enumerate(itertools.pairwise(slot.ran), 1) if one.block != next_.block]


def test_a_slot_lost_while_its_engines_start_anew_leaves_the_whole_unit_to_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, monkeypatch, block_plan(restart=True))
    bench.count, bench.lost_at = 2, 1
    bench.sweep()
    assert bench.store.finished() == {trial.digest for trial in bench.plan.trials}
    kept, lost = bench.slots
    assert len(lost.ran) == 3
    assert "lost: slot-1: gone while its engines started" in bench.lines
    assert [after for after, _ in kept.prepares] == changes_of_block(kept) == [3, 6]


def test_a_slot_lost_before_its_first_trial_leaves_the_sweep_to_the_others(bench: Bench) -> None:
    bench.count, bench.resident, bench.lost_at = 2, 2, 1
    bench.sweep()
    assert bench.store.finished() == {trial.digest for trial in bench.plan.trials}
    assert bench.slots[1].ran == []
    assert "lost: slot-1: gone while its engines started" in bench.lines


def test_the_rest_of_a_lost_slots_block_has_engines_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, monkeypatch, block_plan(restart=True))
    bench.count = 2
    fatal = bench.plan.trials[1]
    bench.lose_slots_at(fatal, "the node died", spared=1)
    bench.sweep()
    other = bench.slots[1]
    assert [after for after, _ in other.prepares] == changes_of_block(other)
    assert other.ran.index(fatal) in changes_of_block(other)
    assert bench.store.finished() == {trial.digest for trial in bench.plan.trials}


class EngineBench(Bench):
    """One slot with the fake engine, in this process. `started`: the arms that engines were started for."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, plan: Plan) -> None:
        super().__init__(folder, monkeypatch, plan)
        self.started: list[str] = []
        spawn = process.spawn

        def counted(engine: Engine, arm: Arm, *rest: Any) -> process.EngineProcess:
            self.started.append(arm.name)
            return spawn(engine, arm, *rest)

        monkeypatch.setattr(process, "spawn", counted)

    @contextlib.asynccontextmanager
    async def _open(self, choice: Choice, *_: object) -> AsyncIterator[list[Any]]:
        slot: Any = Slot("slot-0", MATCH, ANY_LOAD, resident=choice.resident)
        slot.label = await slot.open()
        yield [slot]
        await slot.close()


ENGINES = [
    plain(ready_after_s=0.01),
    {"method": "dflash", "name": "chain", "options": {"ready_after_s": 0.02}},
    {"method": "ddtree", "name": "tree", "budget": 7, "options": {"ready_after_s": 0.02}},
]
"""Two processes: chain and tree share one."""


@pytest.mark.parametrize(
    ("resident", "restart", "whole", "resumed"), [(1, False, 5, 1), (1, True, 7, 2), (2, False, 2, 1), (2, True, 6, 2)]
)
def test_engine_starts_of_a_sweep_and_of_one_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: str, resident: int, restart: bool, whole: int, resumed: int
) -> None:
    plan = sweep_plan(
        ENGINES,
        deployment(environment={VARIABLE: mark}),
        workload={"prompts": {"count": 6}, "max_tokens": 4},
        warmup={"min_requests": 1, "max_requests": 1},
        blocks={"count": 3, "seed": 5, "restart": restart},
    )
    bench = EngineBench(tmp_path, monkeypatch, plan)
    bench.resident = resident
    bench.sweep()
    assert bench.store.finished() == {trial.digest for trial in plan.trials}
    assert len(bench.started) == starts(plan.units, resident, restart) == whole
    bench.started.clear()
    for trial in plan.trials:
        if trial.arm.name == "tree" and trial.block != 1:
            (bench.store.trials.folder / trial.digest / "trial.json").unlink()
    bench.sweep()
    assert bench.started == ["tree"] * resumed
    assert bench.store.finished() == {trial.digest for trial in plan.trials}


def test_a_unit_stays_on_its_slot_in_its_order(bench: Bench) -> None:
    bench.count = 2
    bench.sweep()
    for slot in bench.slots:
        units = [unit.trials for unit in bench.plan.units if unit.trials[0] in slot.ran]
        assert slot.ran == [trial for trials in units for trial in trials]
    assert sum(len(slot.ran) for slot in bench.slots) == 6


def test_what_is_stored_is_not_measured_again(bench: Bench) -> None:
    bench.sweep()
    lost = bench.plan.trials[2]
    (bench.store.trials.folder / lost.digest / "trial.json").unlink()
    bench.sweep()
    assert bench.slots[0].ran == [lost]
    assert "5 of 6 trials are stored; going on with the rest" in bench.lines
    before = len(bench.lines)
    bench.sweep()
    assert len(bench.lines) == before


def test_units_keep_what_is_left_of_them() -> None:
    plan = sweep_plan(ARMS)
    first, second = plan.units
    left = remaining(plan.units, {trial.digest for trial in first.trials} | {second.trials[1].digest})
    assert [unit.trials for unit in left] == [(second.trials[0], second.trials[2])]


def test_a_trial_that_does_not_count_is_run_once_more(bench: Bench) -> None:
    shaky = bench.plan.trials[1]
    bench.script = lambda trial, time: (
        failed(trial, "slot-0", "it broke", now()) if (trial, time) == (shaky, 1) else valid(trial)
    )
    bench.sweep()
    assert bench.slots[0].ran.count(shaky) == 2
    assert bench.store.finished() == {trial.digest for trial in bench.plan.trials}
    told = [(entry.state, entry.reason) for entry in bench.store.entries() if entry.trial == shaky.digest]
    started, ended = (TrialState.STARTED, ""), (TrialState.FAILED, "it broke")
    assert told == [started, ended, started, (TrialState.VALID, "")]
    assert sum("failed: it broke; once more" in line for line in bench.lines) == 1


def test_a_trial_that_never_counts_is_stored_with_its_reason_and_the_sweep_goes_on(bench: Bench) -> None:
    broken = bench.plan.trials[0]
    bench.script = lambda trial, _: failed(trial, "slot-0", "it broke", now()) if trial == broken else valid(trial)
    bench.sweep()
    assert bench.slots[0].ran.count(broken) == 2
    (record,) = [record for record in bench.store.trials.records() if record.state is not TrialState.VALID]
    assert (record.digest, record.state, record.reason) == (broken.digest, TrialState.FAILED, "it broke")
    assert len(bench.store.finished()) == 5


def hopeless(trial: Trial, _: int) -> Measurement:
    return failed(trial, "slot-0", "engine fake ended with exit code 2", now(), TrialState.INVALID)


def long_plan() -> Plan:
    return sweep_plan(ARMS, blocks={"count": 4, "seed": 5})


def test_a_sweep_whose_first_units_never_start_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, monkeypatch, long_plan())
    bench.script = hopeless
    with pytest.raises(InputError) as caught:
        bench.sweep()
    assert str(caught.value) == (
        "gave up: no trial of the first 2 units came to a measurement; the last one: "
        "engine fake ended with exit code 2; --resume tries again"
    )
    assert [trial.digest for trial in bench.plan.trials[:6]] == [t.digest for t in bench.slots[0].ran[::2]]
    assert len(bench.store.trials.records()) == 6
    bench.script = lambda trial, _: valid(trial)
    bench.sweep()
    assert len(bench.store.finished()) == 12


@pytest.mark.parametrize("good", [0, 5])
def test_one_measured_trial_at_the_beginning_keeps_the_sweep_going(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, good: int
) -> None:
    bench = Bench(tmp_path, monkeypatch, long_plan())
    bench.script = lambda trial, time: valid(trial) if trial == bench.plan.trials[good] else hopeless(trial, time)
    bench.sweep()
    assert len(bench.store.trials.records()) == 12


def test_a_fast_failing_slot_does_not_speak_for_a_slow_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, monkeypatch, long_plan())
    bench.count, bench.seconds = 2, 0.1
    bench.script = lambda trial, time: valid(trial) if trial.block == 1 else hopeless(trial, time)
    bench.sweep()
    assert {trial.block for trial in bench.slots[1].ran} == {1}
    assert len(bench.store.trials.records()) == 12


def test_a_lost_slot_leaves_its_unit_to_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, monkeypatch, long_plan())
    bench.count = 2
    fatal = bench.plan.trials[1]
    bench.lose_slots_at(fatal, "the node died; no other has the resources", spared=1)
    bench.sweep()
    assert bench.store.finished() == {trial.digest for trial in bench.plan.trials}
    assert bench.slots[0].ran == list(bench.plan.trials[:2])
    assert "lost: slot-0: the node died; no other has the resources" in bench.lines
    told = [(entry.state, entry.slot) for entry in bench.store.entries() if entry.trial == fatal.digest]
    started, lost = (TrialState.STARTED, "slot-0"), (TrialState.FAILED, "slot-0")
    assert told == [started, lost, (TrialState.STARTED, "slot-1"), (TrialState.VALID, "slot-1")]


def test_a_slot_lost_when_the_others_are_done_is_made_up_for(bench: Bench) -> None:
    bench.count, bench.seconds = 2, 0.1
    last = bench.plan.units[1].trials[2]
    bench.lose_slots_at(last, "gone", spared=0)
    bench.sweep()
    assert bench.slots[0].ran[-1] == bench.slots[1].ran[-1] == last
    assert len(bench.store.finished()) == 6


def test_without_a_slot_the_sweep_ends_in_one_line(bench: Bench) -> None:
    bench.lose_slots_at(bench.plan.trials[4], "the node died")
    with pytest.raises(InputError) as caught:
        bench.sweep()
    assert str(caught.value) == "no slot is left: slot-0: the node died; --resume goes on with the rest"
    assert len(bench.store.finished()) == 4


def test_one_line_a_trial_with_arm_block_rate_and_acceptance_length(bench: Bench) -> None:
    bench.sweep()
    assert len(bench.lines) == 6
    first = bench.plan.trials[0]
    assert bench.lines[0].startswith(f"[1/6] block 0  at 1  {first.arm.name} ")
    assert "    5.0 tok/s  acceptance length 2.50" in bench.lines[0]
    assert bench.lines[0].endswith("left")
    assert bench.lines[5].startswith("[6/6] block 1")
    assert not bench.lines[5].endswith("left")


def test_a_full_disk_is_one_line_and_nothing_half_written(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, written = pd.DataFrame.to_parquet, []

    def full(frame: pd.DataFrame, path: Path, **options: Any) -> None:
        written.append(path)
        if len(written) > 4:
            path.write_bytes(b"PAR1 half")
            raise OSError(errno.ENOSPC, "No space left on device")
        whole(frame, path, **options)

    monkeypatch.setattr(pd.DataFrame, "to_parquet", full)
    with pytest.raises(InputError) as caught:
        bench.sweep()
    assert str(caught.value) == (
        f"{bench.store.folder}: cannot be written: No space left on device; make room, then --resume goes on"
    )
    assert bench.store.finished() == {trial.digest for trial in bench.plan.trials[:2]}
    assert len(bench.store.trials.records()) == 2
    monkeypatch.setattr(pd.DataFrame, "to_parquet", whole)
    bench.sweep()
    assert bench.slots[0].ran == list(bench.plan.trials[2:])
    assert len(bench.store.trials.requests()) == 6


def test_an_interrupt_says_how_to_go_on(bench: Bench) -> None:
    def interrupted(trial: Trial, _: int) -> Measurement:
        if trial == bench.plan.trials[3]:
            raise KeyboardInterrupt
        return valid(trial)

    bench.script = interrupted
    with pytest.raises(KeyboardInterrupt):
        bench.sweep()
    assert bench.lines[-1] == "stopped; 3 of 6 trials are stored: --resume goes on with the rest"
