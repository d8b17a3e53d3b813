from typing import Any

import numpy as np
import pandas as pd
import pytest

from orchestrator.metrics import measure
from orchestrator.promotion.canary import MIN_ROUNDS, Errors, compare, count_errors, more_errors, worst
from orchestrator.promotion.spec import WatchSpec
from tests.orchestrator.sample import failed, frame, request

RULE = WatchSpec(margin=0.1)


def answers(
    factor: float = 1.0, accepted: int = 5, rounds: int = MIN_ROUNDS, seed: int = 0, **changes: Any
) -> pd.DataFrame:
    """Rounds of 8 prompts that differ by a third, with 3 % of noise; TTFT and TPOT times `factor`."""
    draw = np.random.default_rng(seed)
    content = np.exp(np.random.default_rng(99).normal(0, 0.3, 8))
    found = []
    for number in range(rounds):
        rows = []
        for prompt, base in enumerate(content):
            first = 0.1 * base * factor * float(np.exp(draw.normal(0, 0.03)))
            last = first + base * factor * float(np.exp(draw.normal(0, 0.03)))
            values = {"prompt_id": f"p{prompt}", "first": first, "last": last, "accepted": accepted}
            rows.append(request(**values | changes))
        found.append(measure(frame(*rows)).assign(round=number))
    return pd.concat(found, ignore_index=True)


@pytest.mark.parametrize(
    ("factor", "accepted", "worse"),
    [
        (1.0, 5, set()),
        (1.05, 5, set()),
        (0.5, 8, set()),
        (1.3, 5, {"TPOT", "TPOT p90", "TTFT", "TTFT p90"}),
        (1.0, 3, {"acceptance length"}),
    ],
)
def test_only_what_is_surely_worse_beyond_the_margin_is_found(factor: float, accepted: int, worse: set[str]) -> None:
    findings = compare(answers(), answers(factor, accepted, seed=1), RULE)
    assert {finding.metric for finding in findings if finding.worse} == worse
    assert len(findings) == 5
    assert bool(worst(findings)) == bool(worse)


def test_ratios_are_of_the_same_prompt_in_the_same_round() -> None:
    new = answers(1.3, seed=1).sample(frac=1, random_state=0)
    (tpot,) = [finding for finding in compare(answers(), new, RULE) if finding.metric == "TPOT"]
    assert tpot.ratio.estimate == pytest.approx(1.3, rel=0.03)
    assert tpot.ratio.low < 1.3 < tpot.ratio.high


def test_one_round_says_nothing() -> None:
    assert compare(answers(rounds=1), answers(9.0, rounds=1), RULE) == []
    nothing = measure(frame(failed())).assign(round=0)
    assert compare(nothing, nothing, RULE) == []


def log(release: str, **changes: Any) -> dict[str, Any]:
    base = {"upstream": f"orchestrate_t_{release}", "status": 200, "tried": "a:1", "complete": "OK", "time": 1.0}
    return base | changes


def test_errors_are_what_failed_was_cut_or_was_taken_over() -> None:
    entries = [
        log("new"),
        log("new", upstream="orchestrate_t_only_new"),
        log("new", status=502),
        log("new", complete=""),
        log("new", tried="a:1, b:2"),
        log("old", status=500),
        log("new", status=404),
    ]
    assert count_errors(entries, "new") == Errors(6, 3)
    assert count_errors(entries, "old") == Errors(1, 1)


@pytest.mark.parametrize(
    ("old", "new", "worse"),
    [
        (Errors(100, 0), Errors(100, 0), False),
        (Errors(100, 0), Errors(100, 1), False),
        (Errors(1000, 0), Errors(20, 1), True),
        (Errors(20, 1), Errors(20, 1), False),
        (Errors(16, 0), Errors(16, 8), True),
        (Errors(16, 8), Errors(16, 8), False),
        (Errors(8, 0), Errors(8, 1), False),
    ],
)
def test_more_errors_than_chance_explains(old: Errors, new: Errors, worse: bool) -> None:
    assert bool(more_errors(old, new, RULE)) == worse
