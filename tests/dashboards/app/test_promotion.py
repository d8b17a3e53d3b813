from dataclasses import replace
from pathlib import Path

from dashboards.app.places import RUNS, Places
from dashboards.app.promotion import promotion_section, refusals
from dashboards.run import Run
from orchestrator.records import Decision


def test_a_winner_may_be_promoted(winner_decision: Decision) -> None:
    # Another arm's failed gate is no reason.
    assert any(not gate.passed for gate in winner_decision.gates)
    assert refusals(winner_decision) == []


def test_a_tie_and_an_invalid_run_may_not(tie_run: Run, invalid_run: Run) -> None:
    assert "ended in a tie" in refusals(tie_run.decision)[0]
    assert "--allow tie" in refusals(tie_run.decision)[0]
    assert "nothing to promote" in refusals(invalid_run.decision)[0]
    assert "no decision" in refusals(None)[0]


def test_an_unchecked_winner_and_one_with_an_invalid_trial_may_not(winner_decision: Decision) -> None:
    assert "not checked" in refusals(winner_decision.model_copy(update={"unchecked": "the gate is switched off"}))[0]
    line = f"{winner_decision.arm} at concurrency 2, block 0: not measured"
    assert line in refusals(winner_decision.model_copy(update={"invalid_trials": [line]}))[0]


def test_each_target_has_its_command(winner_run: Run, winner_decision: Decision, tmp_path: Path) -> None:
    deploy = tmp_path / "deploy.yaml"
    deploy.write_text("targets: {local: {kind: local}, spare: {kind: local}}")
    page = str(promotion_section(winner_run, winner_decision, Places(RUNS.resolve(), deploy)))
    for name in ("local", "spare"):
        assert f"orchestrate promote winner-synthetic --to {name} --deploy {deploy}" in page
    assert "--runs" not in page


def test_without_targets_the_usual_one_is_named_and_what_is_missing(
    winner_run: Run, winner_decision: Decision, tmp_path: Path
) -> None:
    page = str(promotion_section(winner_run, winner_decision, Places(tmp_path, tmp_path / "none.yaml")))
    assert f"orchestrate promote winner-synthetic --to local --runs {tmp_path}" in page
    assert "does not exist yet" in page
    (tmp_path / "none.yaml").write_text("targets: 3")
    assert "none.yaml:1" in str(
        promotion_section(winner_run, winner_decision, Places(tmp_path, tmp_path / "none.yaml"))
    )


def test_a_name_with_a_blank_is_one_word(winner_run: Run, winner_decision: Decision, tmp_path: Path) -> None:
    run = replace(winner_run, name="a run; rm x")
    assert "promote 'a run; rm x' --to" in str(promotion_section(run, winner_decision, Places(tmp_path))).replace(
        "\\", ""
    )
