"""The gate on real servers of the fake engine, in a slot without Ray."""

import contextlib
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from engines.base import EngineError, Method
from orchestrator import driver, gate
from orchestrator.cluster import Choice
from orchestrator.decision import decide
from orchestrator.driver import run_sweep
from orchestrator.errors import InputError
from orchestrator.gate import calibration_trial, run_gate
from orchestrator.plan import Plan
from orchestrator.records import Divergence, GateResult
from orchestrator.slots import Slot
from orchestrator.spec import dump_spec
from orchestrator.store import RunStore
from orchestrator.validity import Limits
from tests.orchestrator.acting import ANY_LOAD, CHOICE, deployment, plain, sweep_plan

GOOD = {"method": "dflash", "name": "good"}
WRONG = {"method": "dflash", "name": "wrong", "options": {"wrong_after": 5}}

opened: list[Slot] = []


@contextlib.asynccontextmanager
async def local_slots(choice: Choice, count: int, limits: Limits, _: object) -> AsyncIterator[list[Slot]]:
    slot = Slot("slot-0", choice.match, limits)
    slot.label = "slot-0"  # type: ignore[attr-defined]
    opened.append(slot)
    yield [slot]
    await slot.close()


@pytest.fixture(autouse=True)
def _slots(monkeypatch: pytest.MonkeyPatch) -> None:
    opened.clear()
    monkeypatch.setattr(driver, "open_slots", local_slots)
    monkeypatch.setattr(gate, "open_slots", local_slots)


def swept(folder: Path, arms: list[dict[str, Any]], dtype: str = "float32", **changes: Any) -> tuple[Plan, RunStore]:
    plan = sweep_plan(arms, deployment(dtype=dtype), **changes)
    store = RunStore(folder / "run")
    store.create(dump_spec(plan.spec), {})
    run_sweep(plan, store, CHOICE, Console(file=io.StringIO()), ANY_LOAD)
    opened.clear()
    return plan, store


def gated(plan: Plan, store: RunStore) -> tuple[dict[str, GateResult], list[Divergence], str]:
    output = io.StringIO()
    results, divergences = run_gate(plan, store, CHOICE, Console(file=output, width=300))
    return {result.arm: result for result in results}, divergences, output.getvalue()


def test_equal_texts_pass_without_starting_an_engine(tmp_path: Path) -> None:
    plan, store = swept(tmp_path, [plain(), GOOD])
    results, divergences, output = gated(plan, store)
    assert results["good"].passed
    assert (results["good"].prompts, results["good"].exact) == (8, 8)
    assert divergences == []
    assert opened == []
    assert len(pd.read_parquet(store.folder / "equivalence.parquet")) == 0
    assert output == "gate good: passed, 8 of 8 texts are plain decoding's\n"


def test_a_wrong_arm_fails_with_the_engines_gap_as_evidence(tmp_path: Path) -> None:
    plan, store = swept(tmp_path, [plain(gap=0.75), GOOD, WRONG])
    results, divergences, output = gated(plan, store)
    assert results["good"].passed
    assert not results["wrong"].passed
    assert (results["wrong"].violations, results["wrong"].near_tie_gap) == (8, 0.0)
    assert {(d.arm, d.position, d.gap) for d in divergences} == {("wrong", 5, 0.75)}
    stored = pd.read_parquet(store.folder / "equivalence.parquet")
    assert list(stored.columns) == list(Divergence.model_fields)
    assert len(stored) == 8
    assert "gate wrong: FAILED, 8 of 8 texts differ" in output


@pytest.mark.parametrize(("gap", "passed"), [(0.2, True), (0.9, False)])
def test_in_bfloat16_a_near_tie_passes_and_calibration_runs_plain_decoding_at_another_batch(
    tmp_path: Path, gap: float, passed: bool
) -> None:
    plan, store = swept(tmp_path, [plain(gap=gap), WRONG], dtype="bfloat16")
    results, divergences, output = gated(plan, store)
    assert results["wrong"].passed is passed
    assert results["wrong"].near_ties == (8 if passed else 0)
    assert all(divergence.near_tie is passed for divergence in divergences)
    assert "calibrating near-ties: autoregressive on block 0, 4 at once" in output


@pytest.mark.parametrize(("gap", "passed"), [(0.5, True), (2.0, False)])
def test_plain_decoding_that_contradicts_its_own_target_says_how_far_rounding_goes(
    tmp_path: Path, gap: float, passed: bool
) -> None:
    """Its token is the one that lies below; at every batch size it is the same, so that nothing else tells."""
    plan, store = swept(tmp_path, [plain(gap=gap, wrong_after=5), GOOD], dtype="bfloat16")
    results, _, _ = gated(plan, store)
    assert results["good"].near_tie_gap == (0.625 if passed else 0.25)
    assert results["good"].passed is passed


def test_what_one_arm_showed_of_plain_decoding_is_no_excuse_for_another(tmp_path: Path) -> None:
    sooner = WRONG | {"options": {"wrong_after": 3}}
    plan, store = swept(tmp_path, [plain(gap=0.5, wrong_after=5), GOOD, sooner], dtype="bfloat16")
    results, _, output = gated(plan, store)
    assert {name: (result.passed, result.near_tie_gap) for name, result in results.items()} == {
        "good": (True, 0.625),
        "wrong": (False, 0.25),
    }
    assert "gate good: passed, 0 of 8 texts are plain decoding's, 8 part at a near-tie of 0.625 at most" in output
    assert "(logit gap 0.5, a near-tie is 0.25 at most)" in output


def test_plain_decoding_that_parts_from_itself_calibrates_every_arm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, store = swept(tmp_path, [plain(gap=0.5), GOOD, WRONG], dtype="bfloat16")
    parted = gate.compare_texts(store.trials.requests(), plan.arms, "autoregressive")[1].candidates
    monkeypatch.setattr(gate, "self_divergences", lambda *_: parted[:1])
    results, _, _ = gated(plan, store)
    assert {(result.passed, result.near_tie_gap) for result in results.values()} == {(True, 0.625)}


def test_a_number_for_near_ties_needs_no_calibration(tmp_path: Path) -> None:
    plan, store = swept(tmp_path, [plain(gap=0.9), WRONG], dtype="bfloat16", equivalence={"near_tie": 1.0})
    results, _, output = gated(plan, store)
    assert results["wrong"].passed
    assert "calibrating" not in output


def test_a_gate_that_is_off_or_has_no_greedy_text_judges_nothing(tmp_path: Path) -> None:
    off = sweep_plan([plain(), GOOD], equivalence={"enabled": False})
    sampled = sweep_plan([plain(), GOOD], workload={"prompts": {"count": 8}, "temperature": 0.5})
    for plan in (off, sampled):
        assert run_gate(plan, RunStore(tmp_path), CHOICE, Console(file=io.StringIO())) == ([], [])


def test_an_arm_without_valid_trials_does_not_pass(tmp_path: Path) -> None:
    broken = {"method": "dflash", "name": "broken", "options": {"fail": "start"}}
    results, _, _ = gated(*swept(tmp_path, [plain(), broken]))
    assert not results["broken"].passed


@pytest.mark.parametrize("method", ["rankings", "run"])
def test_an_engine_that_cannot_be_asked_fails_the_arms_that_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    plan, store = swept(tmp_path, [plain(gap=0.2), GOOD, WRONG], dtype="bfloat16")

    async def refuse(*_: object) -> None:
        raise EngineError("engine fake ended with exit code 137")

    monkeypatch.setattr(Slot, method, refuse)
    results, divergences, output = gated(plan, store)
    assert results["good"].passed
    assert not results["wrong"].passed
    assert results["wrong"].reason == (
        "8 texts differ and the engine could not be asked how close the calls were: "
        "engine fake ended with exit code 137"
    )
    assert (results["wrong"].prompts, results["wrong"].exact, results["wrong"].near_ties) == (8, 0, 0)
    assert divergences == []
    assert "gate wrong: FAILED, 8 texts differ and the engine could not be asked" in output
    decision = decide(plan, store.trials.records(), store.trials.requests(), list(results.values()))
    assert "could not be asked" in decision.points[0].excluded["wrong"]


def test_divergences_that_cannot_be_written_are_one_line(tmp_path: Path) -> None:
    plan, store = swept(tmp_path, [plain(), GOOD])
    (store.folder / "equivalence.parquet").mkdir()
    with pytest.raises(InputError, match=r"run: cannot be written: Is a directory$"):
        gated(plan, store)


@pytest.mark.parametrize(("measured", "other"), [([1], 4), ([2], 4), ([4], 1), ([1, 4], None)])
def test_calibration_takes_a_batch_size_that_was_not_measured(measured: list[int], other: int | None) -> None:
    plan = sweep_plan([plain(), GOOD], workload={"prompts": {"count": 8}, "concurrency": measured})
    arm = next(arm for arm in plan.arms if arm.method is Method.AUTOREGRESSIVE)
    trial = calibration_trial(plan, arm)
    assert (trial.concurrency if trial else None) == other
    assert trial is None or (trial.arm == arm and trial.digest not in {t.digest for t in plan.trials})


def test_a_small_block_calibrates_with_as_many_as_it_has() -> None:
    plan = sweep_plan([plain(), GOOD], workload={"prompts": {"count": 4}, "concurrency": [1]})
    trial = calibration_trial(plan, plan.arms[0])
    assert trial is not None
    assert trial.concurrency == len(trial.prompts) == 2
