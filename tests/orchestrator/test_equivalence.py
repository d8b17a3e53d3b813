import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.base import Arm, Method, Ranking
from orchestrator.equivalence import (
    CUT,
    STOPPED,
    Candidate,
    compare_texts,
    judge,
    near_tie_gap,
    own_regret,
    self_divergences,
)
from orchestrator.records import Divergence, GateResult
from tests.orchestrator.sample import failed, frame, request

PLAIN = Arm("plain", "reference", Method.AUTOREGRESSIVE)
TREE = Arm("tree", "reference", Method.DDTREE, budget=7)
ELSEWHERE = Arm("else", "vllm", Method.DFLASH)


def texts(expected: list[int], actual: list[int], **changes: object) -> pd.DataFrame:
    return frame(request(arm="plain", token_ids=expected), request(arm="tree", token_ids=actual, **changes))


def candidate(expected: int = 3, actual: int = 4) -> Candidate:
    return Candidate("tree", "chat-01", 1, 2, expected, actual, (7, 8, 1, 2))


def ranking(first: int, second: int, gap: float) -> Ranking:
    return Ranking((first, second), (-0.5, -0.5 - gap))


def verdict(requests: pd.DataFrame, found: Ranking, epsilon: float) -> tuple[GateResult, list[Divergence]]:
    agreements = compare_texts(requests, [PLAIN, TREE], "plain")
    rankings = {c: found for a in agreements for c in a.candidates}
    (result,), divergences = judge(agreements, rankings, epsilon)
    return result, divergences


def test_equal_texts_pass() -> None:
    result, divergences = verdict(texts([1, 2, 3], [1, 2, 3]), ranking(0, 0, 0.0), 0.0)
    assert result.passed
    assert (result.prompts, result.exact, result.near_ties, result.violations) == (1, 1, 0, 0)
    assert divergences == []


def test_candidate_holds_the_first_divergence_and_its_prefix() -> None:
    (agreement,) = compare_texts(texts([1, 2, 3, 9], [1, 2, 4, 9]), [PLAIN, TREE], "plain")
    assert agreement.candidates == (candidate(),)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.lists(st.integers(0, 3), min_size=1, max_size=8))
def test_prefix_is_what_both_share(expected: list[int], actual: list[int]) -> None:
    (agreement,) = compare_texts(texts(expected, actual), [PLAIN, TREE], "plain")
    if expected == actual:
        assert agreement.candidates == ()
        return
    (found,) = agreement.candidates
    assert expected[: found.position] == actual[: found.position] == list(found.prefix[2:])
    assert found.expected != found.actual
    assert found.expected == (expected[found.position] if found.position < len(expected) else STOPPED)


def test_near_tie_needs_the_two_best_and_a_small_gap() -> None:
    requests = texts([1, 2, 3], [1, 2, 4])
    near_and_far = [((3, 4, 0.2), True), ((4, 3, 0.2), True), ((3, 4, 0.3), False), ((3, 5, 0.1), False)]
    for (first, second, gap), near in near_and_far:
        result, (divergence,) = verdict(requests, ranking(first, second, gap), 0.25)
        assert divergence.near_tie is near
        assert result.passed is near
        assert (result.near_ties, result.violations) == (int(near), int(not near))
        assert bool(result.reason) is not near
    assert (divergence.position, divergence.expected_token, divergence.actual_token) == (2, 3, 4)
    assert divergence.gap == math.inf


def test_three_tokens_can_tie() -> None:
    tied = Ranking((9, 3, 4), (-1.0, -1.0, -1.1))
    result, (divergence,) = verdict(texts([1, 2, 3], [1, 2, 4]), tied, 0.25)
    assert result.passed
    assert divergence.gap == pytest.approx(0.1)


def test_no_divergence_is_allowed_at_epsilon_zero() -> None:
    result, (divergence,) = verdict(texts([1, 2, 3], [1, 2, 4]), ranking(3, 4, 0.0), 0.0)
    assert not result.passed
    assert not divergence.near_tie
    assert "chat-01 at token 2" in result.reason


def test_one_violation_among_many_fails() -> None:
    rows = [request(arm=a, prompt_id=f"p{i}", token_ids=[1, i]) for a in ("plain", "tree") for i in range(20)]
    rows[-1] |= {"token_ids": [1, 99]}
    result, divergences = verdict(frame(*rows), ranking(5, 6, 0.01), 0.25)
    assert (result.prompts, result.exact, result.violations, result.passed) == (20, 19, 1, False)
    assert len(divergences) == 1


def test_a_text_that_is_the_others_beginning_differs() -> None:
    """Stopping is a choice of the model and can be a near-tie; being cut short is not."""
    stopped = texts([1, 2, 3], [1, 2])
    result, (divergence,) = verdict(stopped, ranking(3, 50, 0.1), 0.25)
    assert (divergence.expected_token, divergence.actual_token) == (3, STOPPED)
    assert result.passed
    assert not verdict(stopped, ranking(50, 4, 0.1), 0.25)[0].passed
    result, (divergence,) = verdict(texts([1, 2, 3], [1, 2], finish_reason="length"), ranking(3, 50, 0.1), 0.25)
    assert divergence.actual_token == CUT
    assert not result.passed


@pytest.mark.parametrize(
    ("requests", "reason"),
    [
        (pd.DataFrame(), "no prompt answered"),
        (frame(request(arm="plain"), failed(arm="tree")), "no prompt answered"),
        (frame(request(arm="plain", concurrency=1), request(arm="tree", concurrency=4)), "no prompt answered"),
        (texts([], []), "without token ids"),
        (texts([1], [1], prompt_token_ids=[7, 9]), "another prompt"),
    ],
)
def test_a_gate_never_passes_for_want_of_evidence(requests: pd.DataFrame, reason: str) -> None:
    result, _ = verdict(requests, ranking(0, 0, 0.0), 0.25)
    assert not result.passed
    assert reason in result.reason


def test_an_arm_without_plain_decoding_on_its_engine_fails() -> None:
    requests = frame(request(arm="plain"), request(arm="else"))
    agreements = compare_texts(requests, [PLAIN, ELSEWHERE], "plain")
    (result,), _ = judge(agreements, {}, 0.25)
    assert (result.arm, result.passed) == ("else", False)
    assert "no autoregressive arm on the same engine" in result.reason


def test_the_reference_is_the_baseline_where_it_is_plain() -> None:
    again = Arm("again", "reference", Method.AUTOREGRESSIVE)
    requests = texts([1], [1])
    (with_again,) = compare_texts(requests, [again, PLAIN, TREE], "plain")
    (speculative_baseline,) = compare_texts(requests, [again, PLAIN, TREE], "tree")
    assert with_again.reference == "plain"
    assert speculative_baseline.reference == "again"


def test_arrays_read_from_parquet_are_texts_too() -> None:
    requests = texts([1, 2, 3], [1, 2, 4])
    for column in ("token_ids", "prompt_token_ids"):
        requests[column] = requests[column].map(lambda ids: np.asarray(ids, dtype=np.int64))
    assert compare_texts(requests, [PLAIN, TREE], "plain")[0].candidates == (candidate(),)


def test_plain_decoding_against_itself_calibrates() -> None:
    requests = frame(
        request(arm="plain", concurrency=4, token_ids=[1, 2, 4]),
        request(arm="plain", concurrency=1, token_ids=[1, 2, 3]),
        request(arm="plain", concurrency=1, prompt_id="b"),
        request(arm="tree", concurrency=8, token_ids=[9]),
    )
    (found,) = self_divergences(requests, "plain")
    assert (found.arm, found.concurrency, found.expected, found.actual) == ("plain", 4, 3, 4)
    assert self_divergences(pd.DataFrame(), "plain") == []


def test_epsilon() -> None:
    assert near_tie_gap("auto", "float32", [0.5]) == 0.0
    assert near_tie_gap(0.5, "float32", []) == 0.5
    assert near_tie_gap("auto", "bfloat16", []) == 0.25
    assert near_tie_gap("auto", "float16", []) == 0.03125
    assert near_tie_gap("auto", "bfloat16", [0.0, 0.6]) == pytest.approx(0.725)
    assert near_tie_gap("auto", "bfloat16", [math.inf]) == 0.25, "not its two best: a fault, no rounding"
    assert near_tie_gap("auto", "bfloat16", [0.875]) == 1.0, "the most that rounding explains"
    assert near_tie_gap("auto", "bfloat16", [0.375, 0.876, 7.0]) == 0.5, "what contradicts itself by more is broken"
    assert near_tie_gap("auto", "bfloat16", [0.125]) == 0.25, "two spacings are the least"


def test_plain_decoding_answers_for_its_own_tokens_and_not_for_the_arm_s() -> None:
    assert own_regret(candidate(), ranking(4, 3, 0.5)) == 0.5
    assert own_regret(candidate(), ranking(3, 4, 0.5)) == 0.0, "the arm's token is the one below"
    assert own_regret(candidate(), ranking(4, 5, 0.5)) == math.inf
    ended = replace(candidate(), expected=STOPPED)
    assert own_regret(ended, ranking(4, 5, 0.5)) == 0.0


def test_a_gap_of_epsilon_is_a_near_tie_whatever_its_last_bits() -> None:
    for gap, passes in ((0.3750001, True), (0.4375, False)):
        result, _ = verdict(texts([1, 2, 3], [1, 2, 4]), ranking(3, 4, gap), 0.375)
        assert result.passed is passes
