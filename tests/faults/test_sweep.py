"""Whole sweeps in Ray actors: engines that fail in every way, several slots, GPUs that are not the profile's."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from engines.base import EngineError
from orchestrator import pool
from orchestrator.cluster import Choice, Cluster
from orchestrator.driver import run_sweep
from orchestrator.errors import InputError
from orchestrator.pool import open_slots
from orchestrator.records import TrialState
from orchestrator.spec import MatchSpec
from tests.faults.conftest import new_store
from tests.orchestrator.acting import ANY_LOAD, MATCH, arm, deployment, plain, sweep_plan
from tests.orchestrator.processes import VARIABLE, marked

FAILURES = ("exit", "hang", "cut", "garbage", "no_usage", "identity")
WARMED_UP = 3
TWO = Choice("local", 2, MATCH, "")


def failing(failure: str) -> dict[str, Any]:
    """An arm that fails in its measurement, not before."""
    options: dict[str, Any] = {"fail": failure, "fail_after": WARMED_UP}
    return {"method": "dflash", "name": failure, "options": options}


@pytest.mark.slow
def test_every_failure_costs_its_own_trials_and_no_other(cluster: Cluster, tmp_path: Path, mark: str) -> None:
    plan = sweep_plan(
        [plain(), *map(failing, FAILURES)],
        deployment(environment={VARIABLE: mark}),
        workload={"prompts": {"count": 4}, "max_tokens": 12, "request_timeout_s": 0.5},
        warmup={"min_requests": WARMED_UP, "max_requests": WARMED_UP},
    )
    store, output = new_store(tmp_path, plan), io.StringIO()
    run_sweep(plan, store, TWO, Console(file=output, width=300), ANY_LOAD)
    records = {(record.arm, record.block): record for record in store.trials.records()}
    assert len(records) == 2 * (1 + len(FAILURES))
    for (name, _), record in records.items():
        expected = TrialState.VALID if name == "autoregressive" else TrialState.INVALID
        assert record.state is expected, (name, record.reason)
        assert bool(record.reason) == (name != "autoregressive")
        assert "\n" not in record.reason
        assert (store.trials.folder / record.digest / "engine.log").read_bytes()
    assert len(output.getvalue().splitlines()) == len(records) + 2 * len(FAILURES)
    assert marked(mark) == {}


def test_several_slots_share_the_units(cluster: Cluster, tmp_path: Path, mark: str) -> None:
    plan = sweep_plan(
        [plain(), {"method": "dflash"}],
        deployment(environment={VARIABLE: mark}),
        workload={"prompts": {"count": 8}, "max_tokens": 12, "concurrency": [1, 2]},
    )
    store = new_store(tmp_path, plan)
    run_sweep(plan, store, TWO, Console(file=io.StringIO()), ANY_LOAD)
    assert store.finished() == {trial.digest for trial in plan.trials}
    used = {(record.block, record.concurrency): record.slot for record in store.trials.records()}
    assert set(used.values()) == {"slot-0", "slot-1"}
    for record in store.trials.records():
        assert record.slot == used[record.block, record.concurrency]


def test_a_slot_without_the_profiles_gpu_is_refused(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = sweep_plan()
    monkeypatch.setattr("orchestrator.pool.slot_options", lambda _: {"num_cpus": 1})
    choice = Choice("pro6000", 1, MatchSpec(gpus=1, accelerator="RTX-PRO-6000"), "")
    output = io.StringIO()
    with pytest.raises(InputError) as caught:
        run_sweep(plan, new_store(tmp_path, plan), choice, Console(file=output, width=300), ANY_LOAD)
    reason = "slot-0: the slot was given 0 GPUs, the profile says 1"
    assert str(caught.value) == f"profile pro6000: no slot can be used: {reason}"
    assert output.getvalue() == f"left out: {reason}\n"


async def test_a_ranking_that_cannot_be_asked_for_is_one_line(cluster: Cluster, mark: str) -> None:
    async with open_slots(TWO, 1, ANY_LOAD, print) as (slot,):
        with pytest.raises(EngineError) as caught:
            await slot.rankings(arm(fail="start"), deployment(environment={VARIABLE: mark}), [[1, 2]])
        assert str(caught.value).endswith("error: scripted failure at start")
        assert "\n" not in str(caught.value)
        (found,) = await slot.rankings(arm(gap=0.25), deployment(environment={VARIABLE: mark}), [[1, 2]])
    assert found.log_probs[0] - found.log_probs[1] == 0.25


async def test_a_slot_waits_for_its_resources_and_says_so(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_PATIENCE_S", 0.5)
    heard: list[str] = []
    told = asyncio.Event()

    def say(text: str) -> None:
        heard.append(text)
        told.set()

    whole = Choice("local", 1, MatchSpec(cpus=cluster.offers()[0].cpus, memory_gib=0.1), "")
    async with open_slots(whole, 1, ANY_LOAD, print):

        async def second() -> str:
            async with open_slots(TWO, 1, ANY_LOAD, say) as (slot,):
                return slot.name

        waiting = asyncio.create_task(second())
        await told.wait()
    assert await waiting == "slot-0"
    assert heard == ["slot-0 waits for the cluster to have its resources free"]
