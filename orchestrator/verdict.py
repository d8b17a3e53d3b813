"""What a decision means to a script: exit codes."""

from __future__ import annotations

from orchestrator.records import Decision, Verdict

WINNER, TIE, NOT_EQUIVALENT, INVALID = 0, 3, 4, 5


def exit_code(decision: Decision) -> int:
    """0 a winner, 3 a tie, 4 no winner while an arm's text failed the equivalence gate, 5 invalid measurements.

    Without a winner, an arm whose trials do not count might have been one: that is 5, and the gate, which then had no
    text to look at, did not find it wrong.
    """
    if decision.verdict is Verdict.WINNER:
        return WINNER
    if decision.verdict is Verdict.INVALID:
        return INVALID
    failed = [gate for gate in decision.gates if not gate.passed]
    if decision.invalid_trials and not any(gate.prompts for gate in failed):
        return INVALID
    return NOT_EQUIVALENT if failed else TIE
