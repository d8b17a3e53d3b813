import os
import signal
import threading
from collections.abc import AsyncIterator

import pytest

from engines.base import EngineError, Method
from orchestrator.gpus import Card
from orchestrator.plan import Trial
from orchestrator.records import TrialState
from orchestrator.slots import Slot, check_cards, slot_options
from orchestrator.spec import MatchSpec
from orchestrator.validity import Limits
from tests.orchestrator.acting import ANY_LOAD, MATCH, arm, deployment, trial
from tests.orchestrator.processes import VARIABLE, eventually, marked


@pytest.fixture
async def slot(mark: str) -> AsyncIterator[Slot]:
    opened = Slot("slot-0", MATCH, ANY_LOAD)
    assert await opened.open() == "slot-0"
    yield opened
    await opened.close()


def marked_trial(mark: str, method: str = "dflash", **options: object) -> Trial:
    return trial(options, method, deployed=deployment(environment={VARIABLE: mark}))


def servers(mark: str) -> list[int]:
    return [pid for pid, line in marked(mark).items() if "engines.fake.server" in line and "leash" not in line]


async def test_a_trial_is_measured_with_everything_the_store_wants(slot: Slot, mark: str) -> None:
    subject = marked_trial(mark)
    measured = await slot.run(subject)
    record = measured.record
    assert (record.state, record.reason, record.digest) == (TrialState.VALID, "", subject.digest)
    assert (record.arm, record.slot, record.block) == ("subject", "slot-0", subject.block)
    assert (record.warmup_requests, record.identity["method"]) == (pytest.approx(5, abs=3), Method.DFLASH)
    assert list(measured.requests["prompt_id"]) == [prompt.prompt_id for prompt in subject.prompts]
    assert (measured.requests["error"] == "").all()
    assert measured.counters.emitted == (12 - 1) * len(subject.prompts)
    assert measured.stages is not None
    assert measured.stages.steps == measured.counters.verify_steps
    assert 0 <= record.window[0] < record.window[1] <= record.duration
    assert b"simulated" in measured.engine_log
    assert len(measured.telemetry) >= 1


async def test_the_warm_up_is_in_no_counter_and_no_row(slot: Slot, mark: str) -> None:
    measured = await slot.run(marked_trial(mark))
    assert measured.counters.verify_steps == measured.requests["verify_steps"].sum()
    assert len(measured.requests) == 4


async def test_the_engine_stays_for_the_next_trial_that_can_share_it(slot: Slot, mark: str) -> None:
    await slot.run(marked_trial(mark))
    first = servers(mark)
    assert (await slot.run(marked_trial(mark, step_ms=0.5))).record.state is TrialState.VALID
    assert servers(mark) == first
    assert (await slot.run(marked_trial(mark, ready_after_s=0.01))).record.state is TrialState.VALID
    assert len(servers(mark)) == 1
    assert servers(mark) != first


async def test_engines_are_prepared_anew_and_none_of_before_is_left(mark: str) -> None:
    slot = Slot("slot-0", MATCH, ANY_LOAD, resident=2)
    heard: list[str] = []
    slot._doing = heard.append  # type: ignore[method-assign, assignment]
    arms = [(t.arm, t.deployment) for t in (marked_trial(mark), marked_trial(mark, ready_after_s=0.01))]
    assert await slot.prepare(arms) == []
    first = set(servers(mark))
    assert await slot.prepare(arms) == []
    second = set(servers(mark))
    assert (len(first), len(second), first & second) == (2, 2, set())
    assert heard == ["stopping the engines", "starting the engines", "idle"] * 2
    assert await slot.prepare([]) == []
    assert servers(mark) == []
    assert (await slot.run(marked_trial(mark))).record.state is TrialState.VALID
    await slot.close()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"fail": "start"}, "engine fake ended with exit code 1: engines.fake.server (simulated)"),
        ({"fail": "identity"}, "arm 'subject': the server says method = <Method.NGRAM: 'ngram'>"),
        ({"fail": "error"}, "warm-up request "),
        ({"fail": "error", "fail_after": 4}, "the server broke off: fake error"),
        ({"fail": "exit", "fail_after": 4}, "engine fake ended with exit code 1"),
    ],
)
async def test_a_failing_engine_costs_one_trial(slot: Slot, mark: str, options: dict[str, object], reason: str) -> None:
    warmup = {"min_requests": 3, "max_requests": 3}
    workload = {"prompts": {"count": 8}, "max_tokens": 12, "request_timeout_s": 0.5}
    deployed = deployment(environment={VARIABLE: mark})
    measured = await slot.run(trial(options, deployed=deployed, warmup=warmup, workload=workload))
    assert measured.record.state is TrialState.INVALID
    assert reason in measured.record.reason
    assert "\n" not in measured.record.reason
    assert b"simulated" in measured.engine_log
    assert eventually(lambda: marked(mark) == {}), "a failed engine is stopped"


async def test_the_trial_after_a_failed_one_has_a_new_engine(slot: Slot, mark: str) -> None:
    assert (await slot.run(marked_trial(mark, fail="cut"))).record.state is TrialState.INVALID
    assert (await slot.run(marked_trial(mark))).record.state is TrialState.VALID


async def test_an_engine_killed_between_trials_is_replaced(slot: Slot, mark: str) -> None:
    await slot.run(marked_trial(mark))
    os.kill(servers(mark)[0], signal.SIGKILL)
    assert eventually(lambda: marked(mark) == {})
    assert (await slot.run(marked_trial(mark))).record.state is TrialState.VALID


async def test_an_engine_killed_in_a_trial_makes_it_invalid(slot: Slot, mark: str) -> None:
    killer = threading.Timer(1.2, lambda: os.kill(servers(mark)[0], signal.SIGKILL))
    killer.start()
    measured = await slot.run(marked_trial(mark, step_ms=100.0, tokens_per_step=1.0))
    killer.join()
    assert measured.record.state is not TrialState.VALID
    assert measured.record.reason.startswith("engine fake ended with exit code 137")


async def test_limits_are_the_slots(mark: str) -> None:
    strict = Slot("slot-0", MATCH, Limits(client_lag_s=0.0))
    measured = await strict.run(marked_trial(mark))
    await strict.close()
    assert measured.record.state is TrialState.INVALID
    assert measured.record.reason.startswith("the load client sent late")
    assert len(measured.requests) == 4


async def test_a_disturbed_machine_costs_no_engine(mark: str) -> None:
    strict = Slot("slot-0", MATCH, Limits(client_lag_s=0.0))
    disturbed = await strict.run(marked_trial(mark))
    first = servers(mark)
    await strict.run(marked_trial(mark))
    assert (disturbed.disturbed, len(first), servers(mark)) == (True, 1, first)
    os.kill(first[0], signal.SIGKILL)
    assert eventually(lambda: marked(mark) == {})
    again = await strict.run(marked_trial(mark))
    assert (again.disturbed, len(again.requests)) == (True, 4), "a dead one is replaced"
    failed = await strict.run(marked_trial(mark, fail="cut"))
    assert not failed.disturbed
    assert eventually(lambda: marked(mark) == {})
    await strict.close()


async def test_what_a_slot_does_can_be_asked(slot: Slot, mark: str) -> None:
    assert (await slot.activity()).what == "idle"
    heard: list[str] = []
    slot._doing = heard.append  # type: ignore[method-assign, assignment]
    await slot.run(marked_trial(mark))
    assert heard == ["starting the engine", "warming up", "measuring", "idle"]


async def test_rankings_come_from_an_engine_of_the_arm(slot: Slot, mark: str) -> None:
    deployed = deployment(environment={VARIABLE: mark})
    first, second = await slot.rankings(arm(gap=0.5), deployed, [[1, 2], [3]])
    assert [found.log_probs[0] - found.log_probs[1] for found in (first, second)] == [0.5, 0.5]
    assert len(set(first.token_ids)) == 2
    with pytest.raises(EngineError, match="scripted failure at start"):
        await slot.rankings(arm(fail="start"), deployed, [[1]])


RTX = MatchSpec(accelerator="RTX-PRO-6000", gpus=1)
CARD = Card(0, "NVIDIA RTX PRO 6000 Blackwell Server Edition", "GPU-1", 96 << 30, 600.0)


def test_the_gpu_that_was_given_must_be_the_profiles() -> None:
    check_cards([CARD], RTX)
    check_cards([], MatchSpec())
    check_cards([CARD], MatchSpec(gpus=1))
    with pytest.raises(EngineError, match=r"was given NVIDIA RTX PRO 6000 .* \(GPU-1\), the profile says H200"):
        check_cards([CARD], MatchSpec(accelerator="H200", gpus=1))
    with pytest.raises(EngineError, match="was given 1 GPUs, the profile says 2"):
        check_cards([CARD], MatchSpec(accelerator="RTX-PRO-6000", gpus=2))


def test_ray_is_asked_for_what_the_profile_matches() -> None:
    options = slot_options(MatchSpec(accelerator="H200", gpus=2, cpus=4, memory_gib=1.5))
    assert (options["num_gpus"], options["num_cpus"], options["accelerator_type"]) == (2, 4, "H200")
    assert options["memory"] == 3 << 29
    assert "accelerator_type" not in slot_options(MATCH)
