import pytest

from dashboards.explain import judged, reasons, winner
from dashboards.run import Run
from orchestrator.records import Comparison, Decision, Interval, Verdict


def compared(run: Run, **changes: object) -> Run:
    """The run with the comparison of ddtree-budget=7 changed."""
    assert run.decision is not None
    point = run.decision.points[0]
    changed = [c.model_copy(update=changes) if c.arm == "ddtree-budget=7" else c for c in point.comparisons]
    decision = run.decision.model_copy(update={"points": [point.model_copy(update={"comparisons": changed})]})
    return Run(**{**vars(run), "decision": decision})


def reason(run: Run) -> tuple[str, str]:
    found = next(r for r in reasons(run) if r.arm == "ddtree-budget=7")
    return found.kind, found.text


@pytest.mark.parametrize(
    ("low", "high", "p_adjusted", "selection", "kind", "words"),
    [
        (0.8, 0.9, 0.01, 0.9, "slower", "slower than autoregressive"),
        (0.98, 1.2, 0.2, 1.1, "unclear", "does not clear the margin of 1.02×"),
        (1.02, 1.4, 0.01, 1.1, "unclear", "does not clear the margin of 1.02×"),
        (1.1, 1.4, 0.2, 1.1, "unclear", "p = 0.2 after Holm"),
        (1.1, 1.4, 0.01, 1.1, "faster", "ddtree-budget=15 was faster on the prompts that chose (1.10× against"),
        (1.1, 1.4, 0.01, 9.0, "faster", "could not be told from the simpler ddtree-budget=15"),
    ],
)
def test_reasons_follow_the_stored_numbers(
    winner_run: Run, low: float, high: float, p_adjusted: float, selection: float, kind: str, words: str
) -> None:
    speedup = Interval(estimate=(low + high) / 2, low=low, high=high)
    run = compared(winner_run, speedup=speedup, p_adjusted=p_adjusted, selection_speedup=selection)
    found = reason(run)
    assert found[0] == kind
    assert words in found[1]


def test_every_arm_but_the_winner_has_a_reason(winner_run: Run, winner_decision: Decision) -> None:
    told = {r.arm for r in reasons(winner_run)}
    assert told == set(winner_run.styles) - {winner_decision.arm}


def test_an_arm_without_a_comparison_is_told_as_a_baseline(winner_run: Run) -> None:
    assert winner_run.decision is not None
    renamed = winner_run.decision.model_copy(update={"baseline": "another"})
    told = {r.arm: r.kind for r in reasons(Run(**{**vars(winner_run), "decision": renamed}))}
    assert told["autoregressive"] == "baseline"


def test_an_excluded_arm_is_told_by_its_exclusion(invalid_run: Run) -> None:
    assert [(r.arm, r.kind) for r in reasons(invalid_run)] == [("autoregressive", "excluded")]


def test_a_tie_has_no_winner_but_a_judged_arm(tie_run: Run) -> None:
    assert tie_run.decision is not None
    assert tie_run.decision.verdict is Verdict.TIE
    assert winner(tie_run.decision) is None
    found = judged(tie_run.decision)
    assert isinstance(found, Comparison)
    assert found.arm == "autoregressive-again"
