import math

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.base import Arm, Method
from orchestrator.metrics import by_task, caveats, measure, steady_window, summarise, tokens_within, within_slo
from orchestrator.metrics.percentiles import indicative
from orchestrator.records import ArmSummary, TrialRecord, TrialState
from orchestrator.spec import SloSpec
from orchestrator.statistics import Bootstrap
from tests.orchestrator.sample import failed, frame, request, trial_record

BOOTSTRAP = Bootstrap(0.95, 1000, 0)
TREE = Arm("tree", "reference", Method.DDTREE, budget=3)


def record(stages: dict[str, float] | None, digest: str = "t0") -> TrialRecord:
    return trial_record(digest, arm="tree", stages=stages)


def summary(requests: pd.DataFrame, stages: dict[str, float] | None = None, slo: SloSpec | None = None) -> ArmSummary:
    (found,) = summarise(requests.assign(arm="tree"), [record(stages)], [TREE], slo or SloSpec(), BOOTSTRAP)
    return found


def test_times_count_from_the_schedule_and_the_first_chunk_leaves_tpot() -> None:
    row = measure(frame(request(scheduled=0.0, sent=0.5, first=1.0, last=3.0, first_chunk_tokens=3, output_tokens=11)))
    values = row.iloc[0]
    assert values["lag"] == 0.5
    assert values["ttft"] == 1.0
    assert values["e2e"] == 3.0
    assert values["tpot"] == pytest.approx(2.0 / 8)
    assert values["step"] == pytest.approx(2.0 / 5)


def test_tpot_is_undefined_when_everything_came_in_the_first_chunk() -> None:
    values = measure(frame(request(first=1.0, last=1.0, first_chunk_tokens=11))).iloc[0]
    assert math.isnan(values["tpot"])
    assert math.isnan(values["step"])
    assert values["ttft"] == 1.0


def test_a_failed_request_has_no_times() -> None:
    values = measure(frame(failed(first=1.0))).iloc[0]
    assert not values["ok"]
    assert all(math.isnan(values[name]) for name in ("ttft", "tpot", "e2e"))


def test_steps_an_engine_does_not_tell_are_tokens() -> None:
    assert measure(frame(request(verify_steps=0))).iloc[0]["step"] == pytest.approx(0.2)


def test_window_of_one_at_a_time_is_the_busy_span() -> None:
    requests = frame(request(sent=0.5, last=2.0), request(sent=2.0, last=3.0), request(sent=3.0, last=7.0))
    assert steady_window(requests, 1) == (0.5, 7.0)


def test_window_runs_from_full_concurrency_to_the_first_idle_slot() -> None:
    requests = frame(
        request(sent=0.0, last=4.0),
        request(sent=1.0, last=3.0),
        request(sent=3.0, last=9.0),
        request(sent=4.0, last=6.0),
    )
    assert steady_window(requests, 2) == (1.0, 6.0)


def test_window_of_a_trial_shorter_than_its_concurrency() -> None:
    assert steady_window(frame(request(sent=0.0, last=4.0), request(sent=1.0, last=3.0)), 8) == (1.0, 3.0)


def test_window_of_a_trial_that_never_held_full_concurrency_is_all_of_it() -> None:
    assert steady_window(frame(request(sent=0.0, last=1.0), request(sent=2.0, last=3.0)), 2) == (0.0, 3.0)


def test_window_needs_a_finished_request_and_failures_mark_no_edge() -> None:
    with pytest.raises(ValueError, match="no request finished"):
        steady_window(frame(failed()), 1)
    assert steady_window(frame(request(last=2.0), failed(sent=2.0)), 1) == (0.0, 2.0)


def test_tokens_of_a_request_that_the_window_cuts() -> None:
    requests = frame(request(first=1.0, last=3.0, first_chunk_tokens=1, output_tokens=11))
    assert tokens_within(requests, (0.0, 3.0)) == 11
    assert tokens_within(requests, (0.0, 2.0)) == pytest.approx(1 + 5)
    assert tokens_within(requests, (2.0, 3.0)) == pytest.approx(5)
    assert tokens_within(requests, (4.0, 5.0)) == 0


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 5.0), min_size=1, max_size=20), st.integers(1, 6))
def test_a_closed_loop_is_full_all_through_its_window(durations: list[float], concurrency: int) -> None:
    slots = [0.0] * concurrency
    rows = []
    for duration in durations:
        slot = slots.index(min(slots))
        rows.append(request(sent=slots[slot], first=slots[slot], last=slots[slot] + duration))
        slots[slot] += duration
    requests = frame(*rows)
    start, end = steady_window(requests, concurrency)
    running = [((requests["sent"] <= t) & (requests["last"] > t)).sum() for t in (start, (start + end) / 2)]
    assert start <= end
    assert start == end or all(count == min(concurrency, len(durations)) for count in running)


def test_percentiles_of_too_few_requests_are_marked() -> None:
    few = summary(frame(*(request(prompt_id=str(number), first=1 + 0.001 * number) for number in range(150))))
    assert few.indicative == [99]
    assert few.ttft_ms_p99 == pytest.approx(1000 + 0.99 * 149)
    assert indicative(19) == [50, 90, 99]
    assert indicative(99) == [90, 99]
    assert indicative(1000) == []


def test_acceptance_is_pooled_over_steps_and_macro_over_requests() -> None:
    found = summary(
        frame(
            request(prompt_id="a", verify_steps=10, accepted=20, drafted=40, accepted_by_depth=[9, 7, 4]),
            request(prompt_id="b", verify_steps=30, accepted=10, drafted=120, accepted_by_depth=[10]),
        )
    )
    assert found.acceptance_length.estimate == pytest.approx(1 + 30 / 40)
    assert found.acceptance_length_macro == pytest.approx((3 + 4 / 3) / 2)
    assert found.acceptance_by_depth == pytest.approx([19 / 40, 7 / 40, 4 / 40])
    assert 1 + sum(found.acceptance_by_depth) == pytest.approx(found.acceptance_length.estimate)
    assert found.budget_efficiency == pytest.approx(30 / 160)
    assert 1 < found.acceptance_length.low < 1.75 < found.acceptance_length.high


def test_plain_decoding_accepts_nothing() -> None:
    found = summary(frame(*[request(prompt_id=p, accepted=0, drafted=0, accepted_by_depth=[]) for p in "ab"]))
    assert found.acceptance_length.model_dump() == {"estimate": 1.0, "low": 1.0, "high": 1.0}
    assert found.acceptance_length_macro == 1.0
    assert found.budget_efficiency is None
    assert found.acceptance_by_depth == []


def test_rates_shares_and_percentiles() -> None:
    found = summary(
        frame(
            request(prompt_id="a"),
            request(prompt_id="b", scheduled=3.0, sent=3.0, first=4.0, last=8.0, finish_reason="length"),
            failed(prompt_id="c", scheduled=8.0, sent=8.0),
        )
    )
    assert (found.requests, found.errors, found.tokens, found.trials) == (3, 1, 22, 1)
    assert found.output_tok_s.estimate == pytest.approx(22 / 8)
    assert found.output_tok_s.low < 22 / 8 < found.output_tok_s.high
    assert found.truncated_share == 0.5
    assert found.tpot_ms.estimate == pytest.approx(300)
    assert found.tpot_ms_p50 == pytest.approx(300)
    assert found.tpot_ms_p90 == pytest.approx(380)
    assert found.ttft_ms_p50 == pytest.approx(1000)
    assert found.goodput_rps is None


def test_windows_of_several_trials_add_up() -> None:
    requests = frame(request(trial="t0", prompt_id="a"), request(trial="t1", prompt_id="b", last=5.0))
    assert summary(requests).output_tok_s.estimate == pytest.approx(22 / 8)
    assert summary(requests).trials == 2


def test_goodput_counts_failures_as_misses_and_one_chunk_as_a_hit() -> None:
    requests = frame(
        request(prompt_id="a"),
        request(prompt_id="b", sent=3.0, scheduled=3.0, first=4.0, last=4.0, first_chunk_tokens=11),
        failed(prompt_id="c", sent=4.0, scheduled=4.0),
        request(prompt_id="d", sent=4.0, scheduled=4.0, first=6.0, last=8.0),
    )
    slo = SloSpec(ttft_ms=1500, tpot_ms=250)
    assert within_slo(measure(requests), slo).tolist() == [True, True, False, False]
    assert summary(requests, slo=slo).goodput_rps == pytest.approx(2 / 8)
    assert within_slo(measure(requests), SloSpec(e2e_ms=2000)).tolist() == [False, True, False, False]


def test_step_times_and_the_identity() -> None:
    """400 ms a step at an acceptance length of 2 make 200 ms a token, which is what the requests show."""
    stages = {"steps": 10, "draft": 1.0, "build": 0.5, "verify": 2.0, "commit": 0.25, "host": 0.25, "prefill": 9.0}
    found = summary(frame(request(prompt_id="a"), request(prompt_id="b")), stages)
    assert found.step_ms == pytest.approx({"draft": 100, "build": 50, "verify": 200, "commit": 25, "host": 25})
    assert found.identity_error == pytest.approx(0.0, abs=1e-9)
    slow = summary(frame(request(prompt_id="a"), request(prompt_id="b")), stages | {"verify": 1.0})
    assert slow.identity_error == pytest.approx(400 / 300 - 1)


def test_warm_ups_that_never_got_flat_are_counted_among_valid_trials() -> None:
    requests = frame(*(request(prompt_id=prompt, arm="tree") for prompt in "ab"))
    unsettled = record(None, "t1").model_copy(update={"warmup_flat": False})
    others = [
        unsettled.model_copy(update={"state": TrialState.INVALID}),
        unsettled.model_copy(update={"concurrency": 2}),
        unsettled.model_copy(update={"arm": "plain"}),
    ]
    (found,) = summarise(requests, [record(None), unsettled, *others], [TREE], SloSpec(), BOOTSTRAP)
    assert found.unsettled_trials == 1
    assert summary(requests).unsettled_trials == 0


def test_the_longest_pause_of_a_point_is_told_with_its_trials() -> None:
    """Ten chunks a second, in t1 and t2 none for one and for two seconds."""
    rows = []
    for number, still in enumerate([0.0, 1.0, 2.0]):
        times = [0.1 * chunk + (still if chunk > 5 else 0.0) for chunk in range(1, 31)]
        rows.append(request(trial=f"t{number}", prompt_id=str(number), first=0.1, last=times[-1], chunk_times=times))
    found = summary(frame(*rows))
    assert found.paused_trials == 2
    assert found.longest_pause is not None
    assert found.longest_pause.model_dump() == pytest.approx({"seconds": 2.1, "window": 5.0})
    ending = "while requests were in flight"
    assert caveats(found) == [f"in 2 of 3 trials nothing arrived for up to 2.10 s of 5.00 s {ending}"]
    assert caveats(summary(frame(*rows[:2]))) == [f"in 1 of 2 trials nothing arrived for 1.10 s of 4.00 s {ending}"]
    steady = summary(frame(rows[0], rows[0]))
    assert (steady.paused_trials, steady.longest_pause, caveats(steady)) == (0, None, [])


def test_summaries_stored_before_pauses_were_told_can_be_read() -> None:
    row = summary(frame(request(prompt_id="a"), request(prompt_id="b")))
    stored = row.model_dump(exclude={"paused_trials", "longest_pause"})
    assert ArmSummary.model_validate(stored) == row


def test_caveats_name_what_is_doubtful_and_nothing_else() -> None:
    row = summary(frame(request(prompt_id="a"), request(prompt_id="b")))
    assert caveats(row) == []
    assert caveats(row.model_copy(update={"identity_error": 0.05})) == []
    doubtful = row.model_copy(update={"trials": 4, "unsettled_trials": 2, "identity_error": 0.0734})
    assert caveats(doubtful) == [
        "in 2 of 4 trials the speed was not flat yet when the warm-up ended",
        "step time over acceptance length is 7.3 % off the TPOT measured, more than 5 %",
    ]


def test_without_stage_times_nothing_is_claimed_of_them() -> None:
    found = summary(frame(request(prompt_id="a"), request(prompt_id="b")))
    assert found.step_ms == {}
    assert found.identity_error is None


def test_no_summary_from_nothing() -> None:
    assert summarise(pd.DataFrame(), [], [TREE], SloSpec(), BOOTSTRAP) == []
    one = frame(request(arm="tree"), failed(arm="tree", prompt_id="b"))
    assert summarise(one, [], [TREE], SloSpec(), BOOTSTRAP) == []
    assert by_task(pd.DataFrame()).empty


def test_by_task() -> None:
    found = by_task(
        frame(
            request(prompt_id="a", accepted=10),
            request(prompt_id="b", accepted=0, last=5.0),
            request(prompt_id="c", task="code"),
            failed(prompt_id="d", task="code"),
        )
    ).set_index("task")
    assert found.loc["chat", "acceptance_length"] == pytest.approx(2.0)
    assert found.loc["chat", "tpot_ms"] == pytest.approx(300)
    assert found["requests"].to_dict() == {"chat": 2, "code": 1}


def test_what_the_requests_of_a_trial_share_is_in_the_intervals_of_times_and_rates() -> None:
    plain = Arm("autoregressive", "reference", Method.AUTOREGRESSIVE)
    rows = [
        request(
            arm=arm,
            trial=f"{arm}-{block}",
            block=block,
            prompt_id=f"{block}-{prompt}",
            last=1 + 2 * (1.5 if (arm, block) == ("tree", 1) else 1.0) * (1 + 0.01 * prompt),
        )
        for arm in ("autoregressive", "tree")
        for block in range(3)
        for prompt in range(6)
    ]
    records = [trial_record(f"{arm}-{block}", arm=arm) for arm in ("autoregressive", "tree") for block in range(3)]
    noisy, deaf = (
        summarise(found, records, [plain, TREE], SloSpec(), BOOTSTRAP)[1]
        for found in (frame(*rows), frame(*rows).assign(block=0))
    )
    for name in ("output_tok_s", "tpot_ms"):
        wide, narrow = getattr(noisy, name), getattr(deaf, name)
        assert wide.estimate == narrow.estimate
        assert wide.low < narrow.low
        assert wide.high > narrow.high
