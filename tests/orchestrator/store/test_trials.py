import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from engines.base import SpecCounters, StageTimes
from orchestrator.errors import InputError
from orchestrator.records import DraftTrees, TreeNode, TreeStep, TrialState, request_frame
from orchestrator.store import RunStore
from tests.orchestrator.sample import trial_record
from tests.orchestrator.store.making import DIGEST, request, write


def test_trial_reads_back_as_written(store: RunStore) -> None:
    stages = StageTimes(steps=4, draft=0.1)
    store.trials.write(
        trial_record(DIGEST), request_frame([request("p1")]), pd.DataFrame(), SpecCounters(1, 2), stages, b"hello"
    )
    folder = store.trials.folder / DIGEST
    assert store.trials.records() == [trial_record(DIGEST)]
    assert (folder / "engine.log").read_bytes() == b"hello"
    assert json.loads((folder / "steps.json").read_text())["stages"]["steps"] == 4
    row = store.trials.requests().iloc[0]
    assert list(row["token_ids"]) == [5, 6]
    assert (row["trial"], row["arm"], row["text"]) == (DIGEST, "arm", "é")


def test_draft_trees_read_back_as_written(store: RunStore) -> None:
    node = TreeNode(token_id=1, text="</script>", parent=-1, depth=0, log_prob=0.0)
    trees = DraftTrees(prompt_id="p1", steps=[TreeStep(nodes=[node], accepted=[0], bonus_id=2, bonus_text="b")])
    write(store)
    assert store.trials.trees(DIGEST) is None
    store.trials.write(trial_record(DIGEST), request_frame([]), pd.DataFrame(), SpecCounters(), None, b"", trees)
    assert store.trials.trees(DIGEST) == trees
    (store.trials.folder / DIGEST / "trees.json").write_text("{")
    with pytest.raises(InputError, match=r"trees\.json: damaged"):
        store.trials.trees(DIGEST)


def test_requests_of_invalid_trials_are_left_out(store: RunStore) -> None:
    write(store, "aa" * 32, TrialState.INVALID, "p1")
    write(store, "bb" * 32, TrialState.VALID, "p2")
    assert list(store.trials.requests()["prompt_id"]) == ["p2"]


def test_interrupted_write_leaves_no_trial(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "rename", lambda *_: (_ for _ in ()).throw(OSError("no space left")))
    with pytest.raises(OSError, match="no space"):
        write(store)
    assert store.trials.records() == []


def test_damaged_record_is_one_line_naming_the_file(store: RunStore) -> None:
    write(store)
    (store.trials.folder / DIGEST / "trial.json").write_text("{")
    with pytest.raises(InputError, match=r"trial\.json: damaged record: .*then --resume measures it again") as caught:
        store.trials.records()
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
    path = store.trials.folder / DIGEST / "requests.parquet"
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content(path.read_bytes()))
    with pytest.raises(InputError, match=r"requests\.parquet: damaged: .*then --resume measures it again") as caught:
        store.trials.requests()
    assert "\n" not in str(caught.value)
