import math

import numpy as np
import pandas as pd
import pytest

from engines.base import Arm, Method
from orchestrator.metrics.shared import noise_of, widened
from orchestrator.records import Interval
from orchestrator.statistics import Bootstrap, TrialNoise, mean_interval

ARMS, BLOCKS, PROMPTS = 4, 4, 12
NAMED = [Arm(f"arm-{number}", "reference", Method.DDTREE, budget=7) for number in range(ARMS)]


def steps(noise: np.ndarray, random: np.random.Generator) -> pd.DataFrame:
    """Seconds a step around 1: `noise` (blocks x arms) of the trials, on the log scale, and 3 % of each request."""
    rows = [
        {
            "prompt_id": f"{block}-{prompt}",
            "task": "chat",
            "arm": f"arm-{arm}",
            "block": block,
            "step": math.exp(value),
            "decode": math.exp(value),
            "decode_tokens": 1,
        }
        for (block, arm), shared in np.ndenumerate(noise)
        for prompt, value in enumerate(shared + 0.03 * random.standard_normal(PROMPTS))
    ]
    return pd.DataFrame(rows)


def of_first_arm(measured: pd.DataFrame) -> Interval:
    own = measured[measured["arm"] == "arm-0"]
    values = own["step"].to_numpy()
    found = mean_interval(values, Bootstrap(0.95, 500, 0), np.random.default_rng(1))
    return widened(found, own["block"], noise_of(measured, NAMED), 0.95)


def test_intervals_cover_the_truth_on_a_noisy_host() -> None:
    random, held = np.random.default_rng(3), 0
    for _ in range(400):
        found = of_first_arm(steps(0.1 * random.standard_normal((BLOCKS, ARMS)), random))
        held += found.low <= 1.0 <= found.high
    assert 0.92 <= held / 400 <= 0.98


def test_a_slow_block_is_no_noise_of_its_trials() -> None:
    random = np.random.default_rng(4)
    slow = np.repeat(np.array([[0.0], [0.5], [0.0], [0.5]]), ARMS, axis=1)
    found = noise_of(steps(slow, random), NAMED)
    assert found is not None
    assert found.variance < 1e-3
    assert found.degrees == (ARMS - 1) * (BLOCKS - 1)


def test_an_arm_that_was_dropped_on_the_way_takes_no_blocks_from_the_others() -> None:
    measured = steps(np.zeros((BLOCKS, ARMS)), np.random.default_rng(5))
    dropped = measured[(measured["arm"] != "arm-3") | (measured["block"] == 0)]
    found = noise_of(dropped, NAMED)
    assert found is not None
    assert found.degrees == (ARMS - 2) * (BLOCKS - 1)


def test_a_failed_request_takes_its_prompt_and_not_its_arm() -> None:
    random = np.random.default_rng(7)
    measured = steps(0.1 * random.standard_normal((BLOCKS, ARMS)), random)
    whole = noise_of(measured, NAMED)
    for arm, prompt in (("arm-0", "0-1"), ("arm-1", "1-4"), ("arm-2", "3-9")):
        measured.loc[(measured["arm"] == arm) & (measured["prompt_id"] == prompt), "step"] = float("nan")
    found = noise_of(measured, NAMED)
    assert whole is not None
    assert found is not None
    assert found.degrees == whole.degrees
    assert found.variance == pytest.approx(whole.variance, rel=0.1)


@pytest.mark.parametrize("shape", [(1, ARMS), (BLOCKS, 1)])
def test_one_block_or_one_arm_tells_nothing(shape: tuple[int, int]) -> None:
    measured = steps(np.zeros(shape), np.random.default_rng(6))
    assert noise_of(measured, NAMED) is None
    assert noise_of(measured.assign(step=float("nan")), NAMED) is None


def test_two_errors_add_as_independent_ones_on_the_log_scale() -> None:
    blocks = pd.Series([0, 0, 1, 1])
    many = TrialNoise(2 * 0.04**2, 10**6)  # two blocks: a standard error of 4 %
    found = widened(Interval(estimate=10.0, low=10 / math.exp(0.03), high=10 * math.exp(0.03)), blocks, many, 0.95)
    assert math.log(found.high / 10) == pytest.approx(math.hypot(0.03, 1.96 * 0.04), rel=1e-3)
    assert math.log(10 / found.low) == pytest.approx(math.hypot(0.03, 1.96 * 0.04), rel=1e-3)
    assert widened(found, blocks, None, 0.95) == found
    nothing = Interval(estimate=0.0, low=0.0, high=0.0)
    assert widened(nothing, blocks, many, 0.95) == nothing
    below_zero = widened(Interval(estimate=1.0, low=-1.0, high=3.0), blocks, many, 0.95)
    assert below_zero.low == pytest.approx(1 / below_zero.high)
