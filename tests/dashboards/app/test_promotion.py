from dashboards.app.promotion import refusals
from dashboards.run import Run
from orchestrator.records import Decision


def test_a_winner_may_be_promoted(winner_decision: Decision) -> None:
    # Another arm's failed gate is no reason.
    assert any(not gate.passed for gate in winner_decision.gates)
    assert refusals(winner_decision) == []


def test_a_tie_and_an_invalid_run_may_not(tie_run: Run, invalid_run: Run) -> None:
    assert "tie" in refusals(tie_run.decision)[0]
    assert "no decision" in refusals(invalid_run.decision)[0]
    assert "no decision" in refusals(None)[0]


def test_the_winners_own_gate_counts(winner_decision: Decision) -> None:
    gates = [
        gate.model_copy(update={"passed": False, "reason": "two texts differ"})
        if gate.arm == winner_decision.arm
        else gate
        for gate in winner_decision.gates
    ]
    (reason,) = refusals(winner_decision.model_copy(update={"gates": gates}))
    assert reason.endswith("failed the equivalence gate: two texts differ")


def test_an_unchecked_winner_and_one_with_an_invalid_trial_may_not(winner_decision: Decision) -> None:
    assert "not checked" in refusals(winner_decision.model_copy(update={"unchecked": "the gate is switched off"}))[0]
    line = f"{winner_decision.arm} at concurrency 2, block 0: not measured"
    assert line in refusals(winner_decision.model_copy(update={"invalid_trials": [line]}))[0]
    other = "dflash at concurrency 2, block 0: not measured"
    assert refusals(winner_decision.model_copy(update={"invalid_trials": [other]})) == []
