"""The decision in words: what the stored records say about each arm."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from dashboards.run import Run
from dashboards.text import bounds, count, ratio
from orchestrator.records import ArmSummary, Comparison, Decision, PointDecision, TrialState, Verdict


@dataclass(frozen=True)
class Reason:
    """Why an arm is not the answer. `kind`: excluded, slower, unclear, faster or baseline."""

    arm: str
    kind: str
    text: str


def headline(run: Run) -> str:
    """The verdict in a sentence; without a decision, how far the run got."""
    if run.decision:
        sentence = run.decision.sentence
        named = any(sentence.startswith(arm) for arm in run.styles)
        return f"{sentence if named else sentence[:1].upper() + sentence[1:]}."
    latest = {entry.trial: entry.state for entry in run.entries} | {t.digest: t.state for t in run.trials}
    if not latest:
        return "Nothing has been measured yet."
    states = Counter(latest.values())
    parts = [f"{states[state]} {state}" for state in TrialState if states[state]]
    return f"No decision yet: {count(len(latest), 'trial')} so far ({', '.join(parts)})."


def decided_point(decision: Decision) -> PointDecision | None:
    """The workload point that the decision is for."""
    return next((point for point in decision.points if point.concurrency == decision.concurrency), None)


def point_summaries(decision: Decision) -> list[ArmSummary]:
    """The summaries at the decision's concurrency."""
    return [summary for summary in decision.summaries if summary.concurrency == decision.concurrency]


def at_concurrency(run: Run, concurrency: int) -> Run:
    """The run as its figures show it at another of its workload points; itself where it has no such point."""
    decision = run.decision
    point = next((p for p in decision.points if p.concurrency == concurrency), None) if decision else None
    if decision is None or point is None:
        return run
    shown = {"concurrency": concurrency, "verdict": point.verdict, "arm": point.arm}
    return replace(run, decision=decision.model_copy(update=shown))


def winner(decision: Decision) -> str | None:
    """The arm that won; None for a tie or an invalid run."""
    return decision.arm if decision.verdict is Verdict.WINNER else None


def judged(decision: Decision) -> Comparison | None:
    """The comparison that the verdict rests on: the winner's, or on a tie the best other arm's."""
    point = decided_point(decision)
    return next((c for c in point.comparisons if c.arm == point.candidate), None) if point else None


def reasons(run: Run) -> list[Reason]:
    """Why each arm but the winner is not the answer, in reading order. Arms of which nothing is said are left out."""
    decision = run.decision
    point = decided_point(decision) if decision else None
    if decision is None or point is None:
        return []
    told = {*point.excluded, *(arm for c in point.comparisons for arm in (c.arm, c.baseline))}
    return [_reason(decision, point, arm) for arm in run.styles if arm in told and arm != winner(decision)]


def _reason(decision: Decision, point: PointDecision, arm: str) -> Reason:
    if arm in point.excluded:
        return Reason(arm, "excluded", point.excluded[arm])
    compared = next((c for c in point.comparisons if c.arm == arm), None)
    if compared is None:
        return Reason(arm, "baseline", "the baseline that every speed-up is measured against")
    won = judged(decision) if winner(decision) else None
    return _compared(compared, won, decision.margin, decision.confidence)


def _compared(compared: Comparison, won: Comparison | None, margin: float, confidence: float) -> Reason:
    shown = f"{ratio(compared.speedup.estimate)} ({bounds(compared.speedup, 2)})"
    if compared.speedup.high < 1:
        return Reason(compared.arm, "slower", f"{shown}: slower than {compared.baseline}")
    if compared.speedup.low <= 1 + margin:
        return Reason(compared.arm, "unclear", f"{shown}: does not clear the margin of {ratio(1 + margin)}")
    if compared.p_adjusted > 1 - confidence:
        return Reason(compared.arm, "unclear", f"{shown}: p = {compared.p_adjusted:.2g} after Holm’s adjustment")
    return Reason(compared.arm, "faster", f"{shown}: clears the margin too{_passed_over(compared, won)}")


def _passed_over(compared: Comparison, won: Comparison | None) -> str:
    """Why the half of the prompts that chose put the winner forward."""
    if won is None:
        return ""
    figures = f"{ratio(compared.selection_speedup)} against {ratio(won.selection_speedup)}"
    if compared.selection_speedup < won.selection_speedup:
        return f", but {won.arm} was faster on the prompts that chose ({figures})"
    return f", but could not be told from the simpler {won.arm} on the prompts that chose ({figures})"
