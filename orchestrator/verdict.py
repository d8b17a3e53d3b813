"""What a decision means to a script: exit codes."""

from __future__ import annotations

from orchestrator.records import Decision, Verdict

WINNER, TIE, NOT_EQUIVALENT, INVALID = 0, 3, 4, 5


def exit_code(decision: Decision) -> int:
    """0 a winner, 3 a tie, 4 no winner while an arm failed the equivalence gate, 5 invalid measurements."""
    if decision.verdict is Verdict.WINNER:
        return WINNER
    if decision.verdict is Verdict.INVALID:
        return INVALID
    return TIE if all(gate.passed for gate in decision.gates) else NOT_EQUIVALENT
