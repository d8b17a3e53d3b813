"""Rounds of blocks with slots that answer from a script: no Ray, no engine."""

import contextlib
import io
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from engines.base import SpecCounters
from orchestrator import driver
from orchestrator.decision import decide
from orchestrator.driver import add_blocks, run_sweep
from orchestrator.looks import sentence
from orchestrator.measure import Measurement, failed
from orchestrator.plan import Plan, Trial
from orchestrator.records import REQUEST_COLUMNS, Decision, GateResult, Look, TrialState, Verdict, request_frame
from orchestrator.rounds import open_points
from orchestrator.spec import dump_spec
from orchestrator.store import RunStore
from orchestrator.times import now
from tests.orchestrator.acting import CHOICE, plain, sweep_plan
from tests.orchestrator.sample import request

ARMS = [plain(), {"method": "dflash"}, {"method": "ddtree", "grid": {"budget": [7, 15]}}]
CLOSE = {"autoregressive": 1.0, "dflash": 1.03, "ddtree-budget=7": 1.035, "ddtree-budget=15": 0.7}
CLEAR = CLOSE | {"dflash": 1.5}


class Bench:
    """A run folder, and slots in which an arm's tokens take 10 ms over its gain, with 3 % of noise."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **blocks: int) -> None:
        prompts = {"set": "orchestrate", "count": 80, "seed": 3}
        workload = {"prompts": prompts, "max_tokens": 12, "concurrency": [1]}
        self.plan: Plan = sweep_plan(ARMS, workload=workload, blocks={"count": 4, "max": 10, "seed": 5} | blocks)
        self.store = RunStore(folder / "run")
        self.store.create(dump_spec(self.plan.spec), {})
        self.gains = dict(CLOSE)
        self.broken: set[str] = set()
        self.ran: list[Trial] = []
        self.renewed: list[int] = []
        self.output = io.StringIO()
        self.label = self.name = "slot-0"
        monkeypatch.setattr(driver, "open_slots", self._open)

    @contextlib.asynccontextmanager
    async def _open(self, *_: object) -> AsyncIterator[list[Any]]:
        yield [self]

    async def prepare(self, _: object) -> list[str]:
        self.renewed.append(len(self.ran))
        return []

    async def run(self, trial: Trial) -> Measurement:
        self.ran.append(trial)
        if trial.arm.name in self.broken:
            return failed(trial, "slot-0", "it broke", now())
        record = failed(trial, "slot-0", "", now()).record
        whole = record.model_copy(update={"state": TrialState.VALID, "duration": 2.0, "window": (0.0, 2.0)})
        draw = np.random.default_rng(list(trial.digest.encode()))
        rows = [self._row(trial, prompt.prompt_id, draw) for prompt in trial.prompts]
        return Measurement(whole, request_frame(rows), pd.DataFrame(), SpecCounters(4, 28, 6, 10), None)

    def _row(self, trial: Trial, prompt_id: str, draw: np.random.Generator) -> dict[str, Any]:
        token = 0.01 / self.gains[trial.arm.name] * float(np.exp(draw.normal(0, 0.03)))
        row = request(prompt_id=prompt_id, last=1.0 + 100 * token, output_tokens=101, verify_steps=100)
        return {name: row[name] for name in REQUEST_COLUMNS}

    def sweep(self, failing: dict[str, str] | None = None) -> None:
        console = Console(file=self.output, width=200)
        run_sweep(self.plan, self.store, CHOICE, console)
        add_blocks(self.plan, self.store, CHOICE, console, failing or {})

    def decision(self) -> Decision:
        looks = self.store.looks()
        gates = [
            GateResult(arm=a.name, prompts=8, exact=8, near_ties=0, violations=0, near_tie_gap=0.0, passed=True)
            for a in self.plan.arms
            if a.speculative
        ]
        return decide(self.plan, self.store.trials.records(), self.store.trials.requests(), gates, looks)

    @property
    def lines(self) -> list[str]:
        return self.output.getvalue().splitlines()


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def test_a_clear_sweep_ends_with_its_first_blocks(bench: Bench) -> None:
    bench.gains = CLEAR
    bench.sweep()
    assert len(bench.ran) == 4 * 4
    (look,) = bench.store.looks()
    assert (look.blocks, look.candidate) == (4, "dflash")
    assert look.stop.startswith("clear: dflash is at least ")
    assert any(line.startswith("look after 4 blocks at 1: dflash leads, known to +-") for line in bench.lines)
    found = bench.decision()
    assert (found.verdict, found.arm, found.invalid_trials) == (Verdict.WINNER, "dflash", [])
    assert found.looks == [look]


def test_a_close_sweep_adds_blocks_and_drops_the_hopeless(bench: Bench) -> None:
    bench.sweep()
    looks = bench.store.looks()
    assert [look.blocks for look in looks] == list(range(4, 4 + 2 * len(looks), 2))
    assert len(looks) > 1
    assert "ddtree-budget=15" in looks[0].dropped
    blocks = {arm.name: {t.block for t in bench.ran if t.arm == arm} for arm in bench.plan.arms}
    assert blocks["ddtree-budget=15"] == {0, 1, 2, 3}
    assert blocks["dflash"] > {0, 1, 2, 3}
    found = bench.decision()
    assert found.points[0].excluded["ddtree-budget=15"].startswith("dropped after 4 blocks: ")
    assert found.invalid_trials == []


def test_added_blocks_have_fresh_engines_too_where_that_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, monkeypatch, restart=True)
    bench.sweep()
    assert len(bench.store.looks()) > 2
    changes = [n for n, (one, other) in enumerate(itertools.pairwise(bench.ran), 1) if one.block != other.block]
    opened = next(n for n, trial in enumerate(bench.ran) if trial.block == 4)  # slots open anew, and have no engine
    assert bench.renewed == [n for n in changes if n != opened]
    assert max(bench.renewed) > opened


def test_a_killed_sweep_goes_on_where_it_was(bench: Bench) -> None:
    """The looks that were taken stand, and the trials of their round are measured once."""
    bench.sweep()
    whole, looks = list(bench.ran), bench.store.looks()
    bench.ran.clear()
    path = bench.store.folder / "looks.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:1]) + '{"time": "cut')
    lost = {trial.digest for trial in whole if trial.block >= 5}
    for digest in lost:
        (bench.store.trials.folder / digest / "trial.json").unlink()
    bench.sweep()
    assert {trial.digest for trial in bench.ran} == lost
    again = bench.store.looks()
    assert again[0] == looks[0]
    assert [look.model_copy(update={"time": ""}) for look in again] == [
        look.model_copy(update={"time": ""}) for look in looks
    ]


def test_an_arm_that_fails_the_gate_is_measured_no_further_and_leads_nothing(bench: Bench) -> None:
    """The broken arm is the fastest: had it led, the others would have been dropped as hopeless (pitfall 22)."""
    bench.gains = CLOSE | {"ddtree-budget=15": 3.0}
    bench.sweep({"ddtree-budget=15": "equivalence gate failed: nonsense"})
    first = bench.store.looks()[0]
    assert first.dropped == {"ddtree-budget=15": "equivalence gate failed: nonsense"}
    assert first.candidate != "ddtree-budget=15"
    assert {t.block for t in bench.ran if t.arm.name == "ddtree-budget=15"} == {0, 1, 2, 3}


def test_without_a_baseline_no_block_is_added(bench: Bench) -> None:
    bench.broken = {"autoregressive"}
    bench.sweep()
    assert {trial.block for trial in bench.ran} == {0, 1, 2, 3}
    assert bench.store.looks() == []
    assert (
        "no look at 1, and no more blocks: the baseline autoregressive is out (invalid trial in block 0: it broke)"
        in bench.lines
    )
    assert open_points(bench.plan, []) == [1]
    bench.broken = set()
    bench.sweep()
    assert bench.store.looks()


def test_an_arm_with_a_bad_trial_has_no_part_in_a_look(bench: Bench) -> None:
    bench.broken = {"ddtree-budget=15"}
    bench.sweep()
    looks = bench.store.looks()
    assert looks
    assert all("ddtree-budget=15" not in look.dropped for look in looks)


def test_a_fixed_number_of_blocks_takes_no_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, monkeypatch, count=4, max=4)
    bench.sweep()
    assert bench.store.looks() == []
    assert len(bench.ran) == 16


def test_a_look_in_a_line() -> None:
    look = Look(time="", concurrency=4, blocks=6, candidate=None, half_width=None, dropped={"x": "slow"}, stop="")
    assert sentence(look) == "look after 6 blocks at 4: too few blocks to tell; more blocks; x is dropped: slow"
