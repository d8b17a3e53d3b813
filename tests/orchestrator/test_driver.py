"""The driver with slots that answer from a script: no Ray, no engine."""

import contextlib
import errno
import io
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from engines.base import SpecCounters
from orchestrator import driver
from orchestrator.driver import remaining, run_sweep
from orchestrator.errors import InputError
from orchestrator.measure import Measurement, failed
from orchestrator.plan import Plan, Trial
from orchestrator.records import TrialRecord, TrialState, request_frame
from orchestrator.spec import dump_spec
from orchestrator.store import RunStore, now
from tests.orchestrator.acting import CHOICE, plain, sweep_plan

ARMS = [plain(), {"method": "dflash"}, {"method": "ddtree", "budget": 7}]
Script = Callable[[Trial, int], Measurement]


def valid(trial: Trial) -> Measurement:
    record = failed(trial, "slot-0", "", now()).record
    whole = record.model_dump() | {"state": TrialState.VALID, "duration": 2.0, "window": (0.0, 2.0)}
    row: dict[str, Any] = {"prompt_id": "p", "sent": 0.0, "first": 0.5, "last": 2.0, "error": "", "output_tokens": 10}
    filler = {"task": "", "finish_reason": "stop", "text": "", "scheduled": 0.0}
    counts = ("first_chunk_tokens", "chunks", "prompt_tokens", "verify_steps", "drafted", "accepted", "emitted")
    frame = request_frame([row | filler | dict.fromkeys((*counts, "cached_tokens"), 1)])
    return Measurement(TrialRecord(**whole), frame, pd.DataFrame(), SpecCounters(4, 28, 6, 10), None, b"log")


class ScriptedSlot:
    def __init__(self, index: int, script: Script) -> None:
        self.label = self.name = f"slot-{index}"
        self._script = script
        self.ran: list[Trial] = []

    async def run(self, trial: Trial) -> Measurement:
        self.ran.append(trial)
        return self._script(trial, self.ran.count(trial))


class Bench:
    """A run folder and scripted slots under the driver."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, plan: Plan) -> None:
        self.plan = plan
        self.store = RunStore(folder / "run")
        self.store.create(dump_spec(plan.spec), {})
        self.output = io.StringIO()
        self.slots: list[ScriptedSlot] = []
        self.script: Script = lambda trial, _: valid(trial)
        self.count = 1
        monkeypatch.setattr(driver, "open_slots", self._open)

    @contextlib.asynccontextmanager
    async def _open(self, *_: object) -> AsyncIterator[list[ScriptedSlot]]:
        self.slots = [ScriptedSlot(index, self.script) for index in range(self.count)]
        yield self.slots

    def sweep(self) -> None:
        run_sweep(self.plan, self.store, CHOICE, Console(file=self.output, width=200))

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
    (bench.store.trials_folder / lost.digest / "trial.json").unlink()
    bench.sweep()
    assert bench.slots[0].ran == [lost]
    assert "5 of 6 trials are stored; going on with the rest" in bench.lines
    before = len(bench.lines)
    bench.sweep()
    assert len(bench.lines) == before


def test_units_keep_what_is_left_of_them() -> None:
    plan = sweep_plan(ARMS)
    first, second = plan.units
    left = remaining(plan, {trial.digest for trial in first.trials} | {second.trials[1].digest})
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
    (record,) = [record for record in bench.store.trials() if record.state is not TrialState.VALID]
    assert (record.digest, record.state, record.reason) == (broken.digest, TrialState.FAILED, "it broke")
    assert len(bench.store.finished()) == 5


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
    assert len(bench.store.trials()) == 2
    monkeypatch.setattr(pd.DataFrame, "to_parquet", whole)
    bench.sweep()
    assert bench.slots[0].ran == list(bench.plan.trials[2:])
    assert len(bench.store.requests()) == 6


def test_an_interrupt_says_how_to_go_on(bench: Bench) -> None:
    def interrupted(trial: Trial, _: int) -> Measurement:
        if trial == bench.plan.trials[3]:
            raise KeyboardInterrupt
        return valid(trial)

    bench.script = interrupted
    with pytest.raises(KeyboardInterrupt):
        bench.sweep()
    assert bench.lines[-1] == "stopped; 3 of 6 trials are stored: --resume goes on with the rest"
