import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import InputError
from orchestrator.store import RunStore

PLAIN = {"method": "autoregressive", "name": "autoregressive", "options": {"step_ms": 8.0}}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.mark.slow
@pytest.mark.usefixtures("any_load")
def test_a_faster_arm_wins_and_everything_is_stored(invoke: Any, sweep_file: Any, runs: Path) -> None:
    fast = {"method": "ddtree", "budget": 15, "name": "tree", "options": {"step_ms": 8.0, "tokens_per_step": 3.0}}
    result = invoke("sweep", sweep_file(PLAIN, fast), "--runs", runs)
    assert result.exit_code == 0, result.output
    [folder] = runs.iterdir()
    store = RunStore(folder)
    decision = store.decision()
    assert decision is not None
    assert decision.arm == "tree"
    assert [gate.passed for gate in decision.gates] == [True]
    assert len(store.finished()) == 8
    assert decision.sentence in (folder / "report.html").read_text()
    for name in ("sweep.yaml", "environment.json", "journal.jsonl", "equivalence.parquet"):
        assert (folder / name).exists()

    status = json.loads(invoke("status", "--runs", runs, "--json").output)
    assert status["decision"]["arm"] == "tree"
    assert {trial["state"] for trial in status["trials"]} == {"valid"}
    assert "tree" in invoke("status", "--runs", runs).output
    elsewhere = runs / "other.html"
    assert invoke("report", folder.name, "--runs", runs, "-o", elsewhere).exit_code == 0
    assert elsewhere.exists()

    with pytest.raises(InputError, match="--resume goes on with it, --fresh measures again"):
        invoke("sweep", runs.parent / "sweep.yaml", "--runs", runs)
    before = store.entries()
    assert invoke("sweep", runs.parent / "sweep.yaml", "--runs", runs, "--resume").exit_code == 0
    assert store.entries() == before


@pytest.mark.slow
@pytest.mark.usefixtures("any_load")
def test_the_same_arm_twice_is_a_tie(invoke: Any, sweep_file: Any, runs: Path) -> None:
    arms = [{"method": "dflash", "name": name, "options": {"step_ms": 8.0}} for name in ("one", "two")]
    result = invoke("sweep", sweep_file(PLAIN, *arms), "--runs", runs, "--set", "selection.baseline=one", "--json")
    assert result.exit_code == 3, result.output
    assert json.loads(result.stdout)["verdict"] == "tie"


@pytest.mark.slow
@pytest.mark.usefixtures("any_load")
def test_a_faster_arm_with_other_text_is_no_winner(invoke: Any, sweep_file: Any, runs: Path) -> None:
    options = {"step_ms": 8.0, "tokens_per_step": 3.0, "wrong_after": 4}
    wrong = {"method": "ddtree", "budget": 15, "name": "tree", "options": options}
    result = invoke("sweep", sweep_file(PLAIN, wrong), "--runs", runs)
    assert result.exit_code == 4, result.output
    assert "FAILED" in result.output


def test_plan_starts_nothing_and_names_the_arms(invoke: Any, sweep_file: Any, runs: Path) -> None:
    tree = {"method": "ddtree", "grid": {"budget": [7, 15]}}
    result = invoke("plan", sweep_file(PLAIN, tree), "--json")
    summary = json.loads(result.output)
    assert summary["arms"] == ["autoregressive", "ddtree-budget=7", "ddtree-budget=15"]
    assert summary["trials"] == 12
    assert not runs.exists()


def test_plan_counts_the_engine_starts_and_their_time(invoke: Any, sweep_file: Any) -> None:
    slow = {"method": "dflash", "name": "slow", "options": {"ready_after_s": 0.01}}
    options = ["plan", sweep_file(PLAIN, slow), "--set", "profiles.local.resident=2"]
    anew_options = [*options, "--set", "blocks.restart=true"]
    kept, anew = (json.loads(invoke(*arguments, "--json").output) for arguments in (options, anew_options))
    assert [(found["restart"], found["starts"]) for found in (kept, anew)] == [(False, 2), (True, 8)]
    assert anew["slot_hours"] - kept["slot_hours"] == pytest.approx(6 * 60 / 3600)
    assert json.loads(invoke(*anew_options, "--start-s", "0", "--json").output)["slot_hours"] < kept["slot_hours"]
    kept_text, anew_text = (" ".join(invoke(*arguments).output.split()) for arguments in (options, anew_options))
    assert "8 trials of 16 requests an arm in 4 blocks; on one slot 2 engine starts and at most " in kept_text
    assert "in 4 blocks with new engines for each; on one slot 8 engine starts and at most " in anew_text


def test_plan_needs_no_model_and_no_gpu(invoke: Any) -> None:
    result = invoke("plan", "experiments/tree_width.yaml", "--profile", "pro6000", "--json")
    assert json.loads(result.output)["profile"] == "pro6000"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("arms.1.budget=0", r"sweep\.yaml: --set arms\.1\.budget=0: arms\.1\.budget: .*greater than or equal to 1"),
        ("arms.1.method=eagle3", r"sweep\.yaml: --set arms\.1\.method=eagle3: arms\.1: `budget` is required"),
        ("workload.prompts.count=5000", "5000"),
        ("blocks.colour=red", r"colour: is not a known key; allowed: count, half_width, max, restart, seed, step"),
    ],
)
def test_bad_input_is_one_line(invoke: Any, sweep_file: Any, change: str, complaint: str) -> None:
    file = sweep_file(PLAIN, {"method": "ddtree", "budget": 7})
    with pytest.raises(InputError, match=complaint) as caught:
        invoke("plan", file, "--set", change)
    assert "\n" not in str(caught.value)


def test_unknown_profile_is_one_line(invoke: Any, sweep_file: Any) -> None:
    file = sweep_file(PLAIN, {"method": "ddtree", "budget": 7})
    with pytest.raises(InputError, match="no profile 'gpu'"):
        invoke("plan", file, "--profile", "gpu")


def test_engine_that_lacks_the_method_is_named(invoke: Any, sweep_file: Any) -> None:
    with pytest.raises(InputError, match="engine fake has no ngram"):
        invoke("plan", sweep_file(PLAIN, {"method": "ngram"}))
