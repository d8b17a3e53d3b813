import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from orchestrator.errors import InputError
from orchestrator.records import Decision, TrialState
from orchestrator.spec import SweepSpec
from orchestrator.store import RunStore, find_run
from tests.orchestrator.sample import journal_entry
from tests.orchestrator.store.making import DIGEST, write


def test_finished_needs_a_valid_last_state_and_the_files(store: RunStore) -> None:
    write(store)
    assert store.finished() == set()
    store.journal(journal_entry(DIGEST, TrialState.STARTED))
    store.journal(journal_entry(DIGEST, TrialState.VALID))
    store.journal(journal_entry("cd" * 32, TrialState.VALID))
    assert store.finished() == {DIGEST}
    store.journal(journal_entry(DIGEST, TrialState.FAILED))
    assert store.finished() == set()


def test_a_run_that_goes_on_takes_the_new_rules_and_keeps_its_environment(store: RunStore) -> None:
    store.create({"question": "other?"}, {"cpu": "some", "commit": "new"})
    assert yaml.safe_load((store.folder / "sweep.yaml").read_text()) == {"question": "other?"}
    assert store.environment() == {"cpu": "some"}


@pytest.mark.parametrize("text", ["", "question: [", "question: too little of a sweep", "\x00"])
def test_a_damaged_sweep_is_told(store: RunStore, text: str) -> None:
    (store.folder / "sweep.yaml").write_text(text)
    with pytest.raises(InputError, match=r"sweep\.yaml: damaged record: \S") as caught:
        store.sweep(SweepSpec)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("elsewhere", [{"cpu": "other"}, {"cpu": "some", "gpus": [{"name": "NVIDIA H200"}]}])
def test_a_run_does_not_go_on_with_other_hardware(store: RunStore, elsewhere: dict[str, object]) -> None:
    with pytest.raises(InputError, match=r"measured on some, this is .*--fresh"):
        store.create({"question": "what?"}, elsewhere)
    assert store.environment() == {"cpu": "some"}


HOLD = """
import sys
from pathlib import Path
from orchestrator.store import RunStore
with RunStore(Path(sys.argv[1])).lock():
    print("holding", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_cannot_take_the_run(store: RunStore) -> None:
    command = [sys.executable, "-c", HOLD, str(store.folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "holding\n"
        with pytest.raises(InputError, match="another sweep"), store.lock():
            pass
        other.communicate("")
    with store.lock():
        pass


def test_a_place_that_cannot_be_written_is_one_line(store: RunStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    blocked = RunStore(tmp_path / "file" / "run")
    with pytest.raises(InputError, match=r"file/run: cannot be written: Not a directory$"):
        blocked.create({}, {})
    with pytest.raises(InputError, match=r"file/run: cannot be written: Not a directory$"), blocked.lock():
        pass
    (store.folder / "decision.json").mkdir()
    decision = Decision.model_construct()
    with pytest.raises(InputError, match=r"tree-0123: cannot be written: Is a directory$"):
        store.write_decision(decision)


def test_what_goes_wrong_under_the_lock_is_not_the_locks(store: RunStore) -> None:
    with pytest.raises(OSError, match="mine"), store.lock():
        raise OSError("mine")


@pytest.mark.parametrize("content", ["", "{", "3"])
def test_damaged_environment_is_one_line(store: RunStore, content: str) -> None:
    (store.folder / "environment.json").write_text(content)
    with pytest.raises(InputError, match=r"environment\.json: damaged record"):
        store.create({}, {"cpu": "some"})


def test_find_run(tmp_path: Path) -> None:
    for name in ("tree-01", "tree-02", "other-03"):
        RunStore(tmp_path / name).create({}, {})
    assert find_run(tmp_path, None).folder.name == "other-03"
    assert find_run(tmp_path, "other").folder.name == "other-03"
    assert find_run(tmp_path, "tree-01").folder.name == "tree-01"
    assert find_run(Path("elsewhere"), str(tmp_path / "tree-02")).folder.name == "tree-02"
    with pytest.raises(InputError, match="several runs: tree-01, tree-02"):
        find_run(tmp_path, "tree")
    with pytest.raises(InputError, match="no run absent"):
        find_run(tmp_path, "absent")
