import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from engines.base import SpecCounters, StageTimes
from orchestrator.errors import InputError
from orchestrator.records import (
    Decision,
    DraftTrees,
    JournalEntry,
    TreeNode,
    TreeStep,
    TrialRecord,
    TrialState,
    request_frame,
)
from orchestrator.store import RunStore, find_run, now, write_text

DIGEST = "ab" * 32


def entry(state: TrialState, trial: str = DIGEST) -> JournalEntry:
    return JournalEntry(time=now(), trial=trial, arm="dflash", concurrency=1, block=0, state=state)


def record(digest: str = DIGEST, state: TrialState = TrialState.VALID, arm: str = "dflash") -> TrialRecord:
    return TrialRecord(
        digest=digest,
        arm=arm,
        concurrency=1,
        block=0,
        state=state,
        slot="slot-0",
        identity={},
        counters={},
        stages=None,
        warmup_requests=2,
        warmup_flat=True,
        started_at=now(),
        duration=1.0,
        window=(0.0, 1.0),
    )


def request(prompt_id: str) -> dict[str, object]:
    numbers = dict.fromkeys(("scheduled", "sent", "first", "last"), 0.5)
    counts = dict.fromkeys(
        ("first_chunk_tokens", "chunks", "prompt_tokens", "output_tokens", "verify_steps", "drafted", "accepted"), 2
    )
    rest = {"emitted": 1, "cached_tokens": 0, "accepted_by_depth": [1, 0], "token_ids": [5, 6], "prompt_token_ids": [1]}
    words = {"prompt_id": prompt_id, "task": "chat", "finish_reason": "stop", "text": "é", "error": ""}
    chunks = {"chunk_times": [0.5, 0.75], "chunk_tokens": [1, 1], "coalesced": 0}
    return numbers | counts | rest | words | chunks


def write(store: RunStore, digest: str = DIGEST, state: TrialState = TrialState.VALID, prompt: str = "p1") -> None:
    frame = request_frame([request(prompt)])
    store.write_trial(record(digest, state), frame, pd.DataFrame({"time": [0.0]}), SpecCounters(2, 3), None, b"log")


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    made = RunStore(tmp_path / "tree-0123")
    made.create({"question": "what?"}, {"cpu": "some"})
    return made


def test_trial_reads_back_as_written(store: RunStore) -> None:
    stages = StageTimes(steps=4, draft=0.1)
    store.write_trial(record(), request_frame([request("p1")]), pd.DataFrame(), SpecCounters(1, 2), stages, b"hello")
    folder = store.trials_folder / DIGEST
    assert store.trials() == [record().model_copy(update={"started_at": store.trials()[0].started_at})]
    assert (folder / "engine.log").read_bytes() == b"hello"
    assert json.loads((folder / "steps.json").read_text())["stages"]["steps"] == 4
    row = store.requests().iloc[0]
    assert list(row["token_ids"]) == [5, 6]
    assert (row["trial"], row["arm"], row["text"]) == (DIGEST, "dflash", "é")


def test_draft_trees_read_back_as_written(store: RunStore) -> None:
    node = TreeNode(token_id=1, text="</script>", parent=-1, depth=0, log_prob=0.0)
    trees = DraftTrees(prompt_id="p1", steps=[TreeStep(nodes=[node], accepted=[0], bonus_id=2, bonus_text="b")])
    write(store)
    assert store.trees(DIGEST) is None
    store.write_trial(record(), request_frame([]), pd.DataFrame(), SpecCounters(), None, b"", trees)
    assert store.trees(DIGEST) == trees
    (store.trials_folder / DIGEST / "trees.json").write_text("{")
    with pytest.raises(InputError, match=r"trees\.json: damaged"):
        store.trees(DIGEST)


def test_requests_of_invalid_trials_are_left_out(store: RunStore) -> None:
    write(store, "aa" * 32, TrialState.INVALID, "p1")
    write(store, "bb" * 32, TrialState.VALID, "p2")
    assert list(store.requests()["prompt_id"]) == ["p2"]


def test_interrupted_write_leaves_no_trial(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "rename", lambda *_: (_ for _ in ()).throw(OSError("no space left")))
    with pytest.raises(OSError, match="no space"):
        write(store)
    assert store.trials() == []


def test_finished_needs_a_valid_last_state_and_the_files(store: RunStore) -> None:
    write(store)
    assert store.finished() == set()
    store.journal(entry(TrialState.STARTED))
    store.journal(entry(TrialState.VALID))
    store.journal(entry(TrialState.VALID, "cd" * 32))
    assert store.finished() == {DIGEST}
    store.journal(entry(TrialState.FAILED))
    assert store.finished() == set()


def test_journal_survives_a_line_cut_in_the_middle(store: RunStore) -> None:
    store.journal(entry(TrialState.STARTED))
    with (store.folder / "journal.jsonl").open("ab") as handle:
        handle.write(b'{"time": "2026-')
    store.journal(entry(TrialState.VALID))
    assert [e.state for e in store.entries()] == [TrialState.STARTED, TrialState.VALID]


def test_a_whole_line_that_says_something_else_is_an_error(store: RunStore) -> None:
    store.journal(entry(TrialState.STARTED))
    with (store.folder / "journal.jsonl").open("a") as handle:
        handle.write('{"time": "2026", "colour": "red"}\n')
    with pytest.raises(InputError, match=r"journal\.jsonl:2: "):
        store.entries()


def test_a_run_that_goes_on_takes_the_new_rules_and_keeps_its_environment(store: RunStore) -> None:
    store.create({"question": "other?"}, {"cpu": "some", "commit": "new"})
    assert store.sweep() == {"question": "other?"}
    assert store.environment() == {"cpu": "some"}


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


def test_damaged_record_is_one_line_naming_the_file(store: RunStore) -> None:
    write(store)
    (store.trials_folder / DIGEST / "trial.json").write_text("{")
    with pytest.raises(InputError, match=r"trial\.json: damaged record") as caught:
        store.trials()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(lambda whole: b"", id="empty"),
        pytest.param(lambda whole: whole[: len(whole) // 2], id="cut"),
        pytest.param(lambda whole: whole[:-1008] + bytes(1000) + whole[-8:], id="footer"),
        pytest.param(lambda whole: whole[:4] + bytes(400) + whole[404:], id="pages"),
        pytest.param(None, id="absent"),
    ],
)
def test_damaged_requests_are_one_line_naming_the_file(
    store: RunStore, content: Callable[[bytes], bytes] | None
) -> None:
    write(store)
    path = store.trials_folder / DIGEST / "requests.parquet"
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content(path.read_bytes()))
    with pytest.raises(InputError, match=r"requests\.parquet: damaged: .*then --resume measures it again") as caught:
        store.requests()
    assert "\n" not in str(caught.value)


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


def test_written_text_is_never_half_there(tmp_path: Path) -> None:
    target = tmp_path / "file.json"
    write_text(target, "old")
    write_text(target, "new")
    assert target.read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["file.json"]
