from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from engines.base import Arm, Method
from orchestrator import sweep
from orchestrator.index import build_index, depth_shares, goodput_curves, open_index
from orchestrator.metrics import summarise
from orchestrator.records import TrialState, Verdict
from orchestrator.shelf import Shelf
from orchestrator.spec import SloSpec
from orchestrator.statistics import Bootstrap
from orchestrator.store import RunStore
from tests.dashboards.synthetic import LOAD, TIE, WINNER, plan_of, synthetic_run
from tests.orchestrator.sample import journal_entry


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    return synthetic_run(tmp_path_factory.mktemp("runs") / "load-synthetic", LOAD)


@pytest.fixture
def fresh(tmp_path: Path) -> RunStore:
    return synthetic_run(tmp_path / "winner-synthetic", WINNER)


def test_the_index_holds_what_the_trials_do(store: RunStore) -> None:
    index = build_index(store)
    assert index.trials == store.trials.records()
    columns = ["trial", "prompt_id", "first", "last", "output_tokens", "accepted"]
    order = ["trial", "prompt_id"]
    ours, theirs = (
        f[columns].sort_values(order).reset_index(drop=True) for f in (index.requests, store.trials.requests())
    )
    pd.testing.assert_frame_equal(ours, theirs)
    assert index.problems == []


def test_only_texts_that_are_compared_are_kept(fresh: RunStore) -> None:
    texts = build_index(fresh).requests
    divergent = set(pd.read_parquet(fresh.folder / "equivalence.parquet")["prompt_id"])
    assert divergent
    assert set(texts.loc[texts["text"] != "", "prompt_id"]) == divergent


def test_goodput_agrees_with_the_summary_at_every_limit(store: RunStore) -> None:
    requests, trials = store.trials.requests(), store.trials.records()
    curves = goodput_curves(requests)
    arms = [Arm("dflash", "synthetic", Method.DFLASH), Arm("autoregressive", "synthetic", Method.AUTOREGRESSIVE)]
    for row in curves[curves["arm"].isin([a.name for a in arms])].iloc[1::61].to_dict("records"):
        if row["ms"] <= 0:
            continue
        slo = SloSpec.model_validate({f"{row['limit']}_ms": row["ms"]})
        summaries = summarise(requests, trials, arms, slo, Bootstrap(0.95, 1000, 0))
        (found,) = [s for s in summaries if (s.arm, s.concurrency) == (row["arm"], row["concurrency"])]
        assert row["rps"] == pytest.approx(found.goodput_rps)


def test_depth_shares_weigh_to_the_summarys(store: RunStore) -> None:
    requests = store.trials.requests()
    depths = depth_shares(requests)
    own = requests[(requests["arm"] == "dflash") & (requests["concurrency"] == 1)]
    steps = own.groupby("task")["verify_steps"].sum()
    shares = depths[(depths["arm"] == "dflash") & (depths["concurrency"] == 1) & (depths["depth"] == 1)]
    pooled = sum(row["share"] * steps[row["task"]] for row in shares.to_dict("records")) / steps.sum()
    assert pooled == pytest.approx(sum(counts[0] for counts in own["accepted_by_depth"]) / steps.sum())


def test_a_stored_index_is_used_until_the_run_changes(fresh: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    first = open_index(fresh)
    with monkeypatch.context() as patched:
        patched.setattr("orchestrator.index.build_index", _never)
        again = open_index(fresh)
    pd.testing.assert_frame_equal(again.goodput, first.goodput)
    assert again.trials == first.trials
    record, *_ = fresh.trials.records()
    fresh.journal(journal_entry(record.digest, TrialState.INVALID, "later"))
    monkeypatch.setattr("orchestrator.index.build_index", _never)
    with pytest.raises(AssertionError, match="built again"):
        open_index(fresh)


@pytest.mark.parametrize("name", ["index.json", "requests.parquet"])
def test_a_damaged_index_is_built_again(fresh: RunStore, name: str) -> None:
    whole = open_index(fresh)
    (fresh.folder / "index" / name).write_bytes(b"{")
    assert len(open_index(fresh).requests) == len(whole.requests)


def test_long_telemetry_keeps_its_worst_moment(fresh: RunStore) -> None:
    record = fresh.trials.records()[0]
    path = fresh.trials.folder / record.digest / "telemetry.parquet"
    long = pd.DataFrame({"time": range(9000), "cpu_percent": 90.0, "available_bytes": 5e9})
    long.loc[4321, ["cpu_percent", "available_bytes"]] = [300.0, 1e9]
    long.to_parquet(path)
    frame = build_index(fresh).telemetry
    thin = frame[frame["trial"] == record.digest]
    assert len(thin) < 200
    assert thin["cpu_percent"].max() == 300.0
    assert thin["available_bytes"].min() == 1e9


def test_a_trial_that_belongs_elsewhere_is_left_out(fresh: RunStore) -> None:
    record = fresh.trials.records()[0]
    path = fresh.trials.folder / record.digest / "trial.json"
    path.write_text(record.model_copy(update={"digest": "../../elsewhere"}).model_dump_json())
    index = build_index(fresh)
    assert "../../elsewhere" not in {trial.digest for trial in index.trials}
    assert len(index.problems) == 1


def test_a_sweep_leaves_nothing_to_build_for_the_first_opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = synthetic_run(tmp_path / "tie-synthetic", TIE, decided=False)
    monkeypatch.setattr("orchestrator.sweep.describe", store.environment)
    choice: Any = None  # every trial is there and no text differs: no slot is opened
    sweep.run(plan_of(TIE), store, choice, Console(quiet=True))
    monkeypatch.setattr("orchestrator.index.build_index", _never)
    monkeypatch.setattr("orchestrator.shelf.read_card", _never)
    assert len(open_index(store).trials) == len(store.trials.records())
    assert Shelf(tmp_path).card(store.folder.name).verdict is Verdict.TIE


def _never(*_: Any) -> Any:
    raise AssertionError("built again")
