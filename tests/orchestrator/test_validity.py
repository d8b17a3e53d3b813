from dataclasses import replace

import pytest

from engines.base import ALL_COUNTS, SpecCounters
from orchestrator.answer import Answer
from orchestrator.prompts import Prompt
from orchestrator.validity import Limits, MachineLoad, check, completed, disturbance, total

COUNTERS = SpecCounters(2, 14, 3, 4, (2, 1))
TWO = SpecCounters(4, 28, 6, 8, (4, 2, 0))


def answer(
    name: str, lag: float = 0.001, counters: SpecCounters | None = COUNTERS, tokens: int = 5, last: float = 3.0
) -> Answer:
    prompt = Prompt(name, "chat", (("user", name),))
    return Answer(prompt, scheduled=1.0, sent=1.0 + lag, last=last, output_tokens=tokens, counters=counters)


ANSWERS = [answer("a"), answer("b")]
QUIET = MachineLoad(other=0.1, idle=0.2)


def reason(answers: list[Answer] = ANSWERS, server: SpecCounters = TWO, load: MachineLoad | None = QUIET) -> str:
    return check(answers, 1, server) or disturbance(answers, load, Limits())


def test_a_clean_trial_is_valid() -> None:
    assert reason() == ""


def test_counters_add_up_over_depths_of_any_length() -> None:
    assert total([COUNTERS, SpecCounters(1, 7, 3, 4, (1, 1, 1))]) == SpecCounters(3, 21, 6, 8, (3, 2, 1))
    assert total([]) == SpecCounters()


def test_what_a_server_does_not_count_comes_from_its_requests() -> None:
    server = SpecCounters(verify_steps=5, emitted=9)
    assert completed(server, frozenset({"verify_steps", "emitted"}), ANSWERS) == replace(
        TWO, verify_steps=5, emitted=9, accepted_by_depth=(4, 2)
    )
    assert completed(server, ALL_COUNTS, ANSWERS) == server


@pytest.mark.parametrize("name", ["verify_steps", "drafted", "accepted", "emitted"])
def test_a_server_that_counts_otherwise_than_its_requests_is_not_believed(name: str) -> None:
    wrong = replace(TWO, **{name: getattr(TWO, name) + 1})
    assert f"the server says {name} = {getattr(wrong, name)}" in reason(server=wrong)


def test_depths_are_compared_too() -> None:
    assert "accepted_by_depth" in reason(server=replace(TWO, accepted_by_depth=(3, 3)))


def test_requests_without_counters_leave_the_servers_sum_to_be_checked() -> None:
    silent = [answer("a", counters=None), answer("b", counters=None)]
    assert reason(silent) == ""
    assert reason(silent, replace(TWO, emitted=9)) == "10 output tokens, but verify steps emitted 9 and the prefills 2"


def test_every_token_comes_from_the_prefill_or_a_step() -> None:
    message = reason([answer("a", tokens=6), answer("b", tokens=4)])
    assert message == "request a: 6 output tokens, but its verify steps emitted 4 and the prefill 1"


def test_a_late_client_invalidates() -> None:
    assert "sent late: 99th percentile" in reason([answer("a", lag=0.02), answer("b")])
    assert reason([answer("a", lag=0.005), answer("b")]) == ""


def test_a_lag_counts_as_late_by_its_share_of_short_answers_too() -> None:
    late = [answer("a", lag=0.003, last=1.2), answer("b", last=1.2)]
    assert reason(late) == "the load client sent late: 99th percentile 2.98 ms, allowed 2.00 ms"
    assert reason([answer("a", lag=0.0009, last=1.01), answer("b", lag=0.0, last=1.01)]) == ""


def test_other_load_invalidates_only_where_it_takes_what_the_engine_needs() -> None:
    assert reason(load=MachineLoad(other=0.8, idle=0.0)) == "other processes used 0.80 cores on average, allowed 0.5"
    assert reason(load=MachineLoad(other=0.8, idle=3.0)) == ""
    assert reason(load=MachineLoad(other=0.5, idle=0.0)) == ""
    assert reason(load=None) == ""


def test_a_block_must_hold_enough_prompts_for_the_concurrency() -> None:
    assert "2 prompts a block cannot keep 4 requests in flight" in check(ANSWERS, 4, TWO)
