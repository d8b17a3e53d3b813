import pytest

from orchestrator.records import Decision, GateResult, Verdict
from orchestrator.verdict import exit_code


def decision(verdict: Verdict, gate_passed: bool) -> Decision:
    gate = GateResult(
        arm="ddtree", prompts=4, exact=3, near_ties=0, violations=1, near_tie_gap=0.0, passed=gate_passed, reason=""
    )
    fields = {"verdict": verdict, "gates": [gate], "arm": None, "concurrency": 1, "margin": 0.02, "confidence": 0.95}
    texts = {"sentence": "s", "question": "q", "baseline": "b"}
    lists = dict.fromkeys(("points", "summaries", "invalid_trials"), ())
    return Decision.model_construct(**fields, **texts, **lists)


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
