from typing import Any

import pytest

from orchestrator.records import Decision, GateResult, Verdict
from orchestrator.verdict import exit_code


def decision(verdict: Verdict, gate_passed: bool, invalid: tuple[str, ...] = (), texts: int = 4) -> Decision:
    gate = GateResult(
        arm="ddtree", prompts=texts, exact=3, near_ties=0, violations=1, near_tie_gap=0.0, passed=gate_passed, reason=""
    )
    values: dict[str, Any] = {"verdict": verdict, "gates": [gate], "invalid_trials": invalid, "arm": None}
    return Decision.model_construct(**values)


@pytest.mark.parametrize(
    ("verdict", "gate_passed", "code"),
    [
        (Verdict.WINNER, True, 0),
        (Verdict.WINNER, False, 0),
        (Verdict.TIE, True, 3),
        (Verdict.TIE, False, 4),
        (Verdict.INVALID, True, 5),
        (Verdict.INVALID, False, 5),
    ],
)
def test_exit_code(verdict: Verdict, gate_passed: bool, code: int) -> None:
    assert exit_code(decision(verdict, gate_passed)) == code


@pytest.mark.parametrize(("gate_passed", "texts", "code"), [(True, 4, 5), (False, 0, 5), (False, 4, 4)])
def test_without_a_winner_an_arm_that_was_not_measured_is_no_tie(gate_passed: bool, texts: int, code: int) -> None:
    assert exit_code(decision(Verdict.TIE, gate_passed, ("ddtree at concurrency 1, block 0: late",), texts)) == code


def test_a_gate_that_could_compare_nothing_has_failed_where_every_trial_counts() -> None:
    assert exit_code(decision(Verdict.TIE, False, texts=0)) == 4
