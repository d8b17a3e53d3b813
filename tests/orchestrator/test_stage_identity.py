from dataclasses import replace

import numpy as np
import pytest

from engines.base import SpecCounters, StageTimes
from orchestrator.answer import Answer
from orchestrator.prompts import Prompt
from orchestrator.stage_identity import DELIVERY_S, balance, disagreement

STEP_S = 0.05
LIMIT = 0.05


def load(steps: list[int], step_s: float = STEP_S, noise: list[float] | None = None) -> list[Answer]:
    """One answer for each number of steps; `noise` in seconds lengthens what the client saw of it."""
    return [
        Answer(
            Prompt(f"p-{number}", "chat", (("user", str(number)),)),
            scheduled=0.0,
            first=1.0,
            last=1.0 + count * step_s + (noise[number] if noise else 0.0),
            output_tokens=2 * count + 1,
            first_chunk_tokens=1,
            counters=SpecCounters(verify_steps=count),
        )
        for number, count in enumerate(steps)
    ]


def told(steps: list[int], step_s: float = STEP_S) -> StageTimes:
    return StageTimes(steps=sum(steps), draft=0.25 * sum(steps) * step_s, verify=0.75 * sum(steps) * step_s)


STEPS = [20, 31, 12, 25]


@pytest.mark.parametrize("off", [0.952, 1.0, 1.05])
def test_within_the_limit_is_believed(off: float) -> None:
    assert disagreement(load(STEPS, off * STEP_S), told(STEPS), LIMIT) == ""


@pytest.mark.parametrize("off", [0.92, 1.08, 1.5])
def test_beyond_it_is_not(off: float) -> None:
    reason = disagreement(load(STEPS, off * STEP_S), told(STEPS), LIMIT)
    assert reason.startswith(f"a step took {50 * off:.1f} ms by the answers and 50.0 ms by the server's stages (draft ")
    assert f"{100 * (off - 1):+.0f} %" in reason
    assert "\n" not in reason


def test_parts_that_did_not_run_are_not_named() -> None:
    assert "(verify 25.0): +100 %" in disagreement(load(STEPS), StageTimes(steps=88, verify=2.2), LIMIT)


def test_noise_of_few_requests_is_no_disagreement_and_that_of_many_is_averaged_out() -> None:
    """Requests that are 15 % too long on average: with a scatter of 8 %, four cannot tell and forty can."""
    draw = np.random.default_rng(5)

    def found(count: int) -> str:
        noise = (0.15 + 0.08 * draw.standard_normal(count)) * 20 * STEP_S
        return disagreement(load([20] * count, noise=list(noise)), told([20] * count), LIMIT)

    assert found(4) == ""
    assert "allowed 5 %" in found(40)


@pytest.mark.parametrize("count", [4, 12])
def test_a_loaded_machine_that_is_honest_is_almost_never_refused(count: int) -> None:
    """Deliveries that come late by some hundredths of a second at either end, heavy in the tail."""
    draw = np.random.default_rng(7)
    refused = 0
    for _ in range(2000):
        steps = [int(n) for n in draw.integers(6, 24, count)]
        noise = draw.exponential(0.03, count) - draw.exponential(0.03, count)
        refused += bool(disagreement(load(steps, noise=list(noise)), told(steps), LIMIT))
    assert refused <= 2


def test_the_time_that_a_head_takes_is_no_disagreement() -> None:
    """Fast steps of a small model: 20 ms of decoding, of which the first chunk's delivery hides 2 ms."""
    steps = [10] * 8
    late = [-DELIVERY_S] * 8
    assert disagreement(load(steps, 0.002, late), told(steps, 0.002), LIMIT) == ""
    assert disagreement(load(steps, 0.002, [2.5 * shift for shift in late]), told(steps, 0.002), LIMIT)


def test_steps_that_differ_between_requests_widen_the_interval_only() -> None:
    """Long contexts have slower steps: the server's sum knows it, and so the two agree."""
    answers = load(STEPS)
    slow = [replace(answers[0], last=1.0 + 20 * 2 * STEP_S), *answers[1:]]
    stages = StageTimes(steps=88, verify=(20 * 2 + 68) * STEP_S)
    found = balance(slow, stages)
    assert found is not None
    assert found.error == pytest.approx(0, abs=1e-9)
    assert found.spread > 0


def test_one_request_or_no_stages_say_nothing() -> None:
    assert balance(load([20]), told([20])) is None
    assert balance(load(STEPS), StageTimes()) is None
    short = [replace(answer, output_tokens=1) for answer in load(STEPS)]
    assert disagreement(short, told(STEPS), LIMIT) == ""


def test_without_counters_tokens_stand_for_steps() -> None:
    plain = [replace(answer, counters=None) for answer in load(STEPS)]
    found = balance(plain, told(STEPS))
    assert found is not None
    assert found.spread == pytest.approx(0, abs=1e-9)
