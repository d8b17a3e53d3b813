"""The script's tokens, steps and counters."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.base import Method, SpecCounters
from engines.fake.script import VOCABULARY, Script, candidates, prefix_state

PROMPT = [*b"hello"]


def test_an_answer_depends_on_the_prompt_alone() -> None:
    scripts = (Script(), Script(method=Method.DFLASH, step_ms=9))
    answers = [list(islice(script.tokens(PROMPT), 50)) for script in scripts]
    assert answers[0] == answers[1]
    assert answers[0] != list(islice(Script().tokens([*b"hellp"]), 50))
    assert all(0 <= token < VOCABULARY for token in answers[0])


def test_a_wrong_answer_leaves_the_right_one_at_the_chosen_position_for_the_second_best() -> None:
    right, wrong = (list(islice(Script(wrong_after=at).tokens(PROMPT), 30)) for at in (-1, 4))
    assert right[:4] == wrong[:4]
    assert (right[4], wrong[4]) == candidates(prefix_state(PROMPT + right[:4]))
    assert right[5:] != wrong[5:]


@given(st.integers(0, 500))
def test_the_two_candidates_differ(state: int) -> None:
    first, second = candidates(state * 7919)
    assert first != second
    assert 0 <= second < VOCABULARY


@given(st.floats(1, 8), st.integers(0, 200))
def test_steps_give_all_tokens_at_the_pace_asked_for(pace: float, tokens: int) -> None:
    script = Script(method=Method.DDTREE, budget=15, tokens_per_step=pace)
    steps = list(script.steps(tokens))
    assert sum(emitted for emitted, _ in steps) == tokens
    assert abs(len(steps) - tokens / pace) <= 1 + 1 / pace
    assert all(accepted == emitted - 1 for emitted, accepted in steps[:-1])
    counters = SpecCounters()
    for emitted, accepted in steps:
        counters = script.count(counters, emitted, accepted)
    assert (counters.verify_steps, counters.emitted) == (len(steps), tokens)
    assert counters.drafted == 15 * len(steps)
    assert sum(counters.accepted_by_depth) == counters.accepted == sum(accepted for _, accepted in steps)
    assert tokens <= counters.verify_steps + counters.accepted <= tokens + 1


def test_plain_decoding_drafts_nothing() -> None:
    script = Script()
    assert (script.drafted, script.pace) == (0, 1)
    assert list(script.steps(3)) == [(1, 0)] * 3


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"fail": "sometimes"}, "`fail` must be one of start, never_ready"),
        ({"speed": 3}, "has no option 'speed'; it has cached_tokens, chain, fail"),
        ({"step_ms": "fast"}, "`step_ms` must be of type float"),
        ({"stop_after": 1.5}, "`stop_after` must be of type int"),
        ({"tokens_per_step": 2}, "`tokens_per_step` must be between 1 and 1"),
        ({"method": "dflash", "tokens_per_step": 9}, "between 1 and 8"),
        ({"method": "ddtree", "budget": 3, "tokens_per_step": 0.5}, "between 1 and 4"),
        ({"method": "magic"}, "magic"),
    ],
)
def test_options_that_do_not_exist_or_fit_are_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Script.parse(options)
