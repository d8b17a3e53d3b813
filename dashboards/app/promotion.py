"""Whether a run's answer may be promoted, by what its decision says."""

from __future__ import annotations

from orchestrator.records import Decision, Verdict


def refusals(decision: Decision | None) -> list[str]:
    """Why promoting would be refused, a reason a line; none for a winner that may serve."""
    if decision is None:
        return ["The run has no decision yet."]
    if decision.verdict is Verdict.TIE:
        return [f"The decision is a tie: nothing was shown to be better than {decision.baseline}."]
    if decision.verdict is Verdict.INVALID or decision.arm is None:
        return ["The measurements allow no decision."]
    failed = [gate for gate in decision.gates if gate.arm == decision.arm and not gate.passed]
    reasons = [f"{gate.arm} failed the equivalence gate: {gate.reason}" for gate in failed]
    if decision.unchecked:
        reasons.append(f"Equivalence was not checked: {decision.unchecked}.")
    bad = [line for line in decision.invalid_trials if line.startswith(f"{decision.arm} at concurrency ")]
    return reasons + [f"An invalid trial: {line}" for line in bad]
