import shutil
from pathlib import Path

import pytest

from orchestrator.errors import InputError
from orchestrator.promotion.freeze import freeze
from orchestrator.promotion.release import Release, load_release
from orchestrator.records import Verdict
from orchestrator.spec import SweepSpec
from orchestrator.store import RunStore
from tests.orchestrator.promotion.making import change_decision


def test_a_release_holds_what_the_run_measured(made: dict[str, Release], measured: dict[str, RunStore]) -> None:
    release, decision = made["first"], measured["first"].decision()
    assert decision is not None
    assert decision.verdict is Verdict.WINNER
    record = release.record
    assert (record.arm.name, record.arm.method, record.profile) == ("chain", "dflash", "local")
    summary = next(row for row in decision.summaries if row.arm == "chain")
    assert record.promise.tpot_ms == summary.tpot_ms
    assert record.promise.acceptance_length == summary.acceptance_length
    stored = measured["first"].trials.requests()
    for prompt in record.smoke:
        rows = stored[(stored["arm"] == "chain") & (stored["prompt_id"] == prompt.prompt_id)]
        assert prompt.token_ids == list(rows.iloc[0]["token_ids"])
    assert len({prompt.task for prompt in record.smoke}) > 1
    low, high = record.smoke_acceptance_length.low, record.smoke_acceptance_length.high
    assert low <= 1 + sum(p.accepted for p in record.smoke) / sum(p.verify_steps for p in record.smoke) <= high


def test_the_same_run_gives_the_same_release(
    made: dict[str, Release], measured: dict[str, RunStore], tmp_path: Path
) -> None:
    again = freeze(measured["first"], tmp_path)
    assert again.id == made["first"].id
    assert again.id != made["second"].id
    assert freeze(measured["first"], tmp_path).folder == again.folder
    assert [path.name for path in tmp_path.iterdir()] == [again.name]


@pytest.mark.parametrize("tampering", ["change", "remove", "add", "sums"])
def test_a_tampered_release_is_refused_with_the_files_name(
    measured: dict[str, RunStore], tmp_path: Path, tampering: str
) -> None:
    folder = freeze(measured["first"], tmp_path).folder
    decision, sums = folder / "decision.json", folder / "SHA256SUMS"
    if tampering == "change":
        decision.write_text(decision.read_text().replace("winner", "Winner"))
    elif tampering == "remove":
        decision.unlink()
    elif tampering == "add":
        (folder / "decision.json2").write_text("{}")
    else:
        sums.write_text(sums.read_text().replace("decision.json\n", "decisions.json\n"))
        decision.rename(folder / "decisions.json")
    with pytest.raises(InputError, match=r"tampered with: (decision\.json2? (is missing|was added|was changed)|SHA)"):
        load_release(folder)
    with pytest.raises(InputError, match="tampered"):
        freeze(measured["first"], tmp_path)


def test_a_run_without_an_answer_gives_no_release(measured: dict[str, RunStore], tmp_path: Path) -> None:
    store = RunStore(tmp_path / "copy")
    shutil.copytree(measured["first"].folder, store.folder)
    change_decision(store, verdict="invalid", arm=None, sentence="no decision: noise")
    with pytest.raises(InputError, match="nothing to promote: no decision: noise"):
        freeze(store, tmp_path / "releases")
    (store.folder / "decision.json").unlink()
    with pytest.raises(InputError, match="not decided yet"):
        freeze(store, tmp_path / "releases")


def test_a_model_that_changed_since_is_refused(measured: dict[str, RunStore], tmp_path: Path) -> None:
    store = RunStore(tmp_path / "copy")
    shutil.copytree(measured["first"].folder, store.folder)
    elsewhere = tmp_path / "target"
    was = store.sweep(SweepSpec).profiles["local"].models.target
    shutil.copytree(Path(was), elsewhere)
    (elsewhere / "config.json").write_text('{"other": true}')
    sweep = (store.folder / "sweep.yaml").read_text()
    (store.folder / "sweep.yaml").write_text(sweep.replace(was, str(elsewhere)))
    with pytest.raises(InputError, match="not measured with what is here now"):
        freeze(store, tmp_path / "releases")


@pytest.mark.parametrize("arm", ["chain", "baseline"])
@pytest.mark.parametrize("gap", [0.625, None])
def test_a_release_has_its_gates_near_tie_and_plain_decoding_its_engines(
    measured: dict[str, RunStore], tmp_path: Path, arm: str, gap: float | None
) -> None:
    store = RunStore(tmp_path / "copy")
    shutil.copytree(measured["first"].folder, store.folder)
    decision = store.decision()
    assert decision is not None
    gates = [gate.model_copy(update={"near_tie_gap": gap}) for gate in decision.gates if gap is not None]
    change_decision(store, gates=gates, arm=decision.baseline if arm == "baseline" else arm)
    assert freeze(store, tmp_path / "releases").record.near_tie_gap == (gap or 0.0), "float32 rounds nothing by itself"
