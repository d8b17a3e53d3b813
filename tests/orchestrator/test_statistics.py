import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from orchestrator.statistics import (
    Bootstrap,
    TrialNoise,
    bootstrap_errors,
    holm,
    mean_interval,
    paired_estimate,
    ratio_interval,
    trial_noise,
)

BOOTSTRAP = Bootstrap(0.95, 10_000, 0)
QUIET = TrialNoise(0.0, 3)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_holm_known_answer() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12))
def test_holm_never_lowers_and_keeps_the_order(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    assert all(p <= a <= 1 for p, a in zip(p_values, adjusted, strict=True))
    ranks = sorted(range(len(p_values)), key=lambda i: p_values[i])
    assert all(adjusted[a] <= adjusted[b] for a, b in itertools.pairwise(ranks))


def test_percentile_t_of_normal_values_is_students_interval() -> None:
    """The mean of many normal values: bootstrap and Student agree."""
    values = rng(4).normal(2.0, 1.0, 200)
    found = mean_interval(values, Bootstrap(0.95, 40_000, 0), rng())
    half = stats.t.ppf(0.975, 199) * values.std(ddof=1) / math.sqrt(200)
    assert found.estimate == pytest.approx(values.mean())
    assert found.low == pytest.approx(values.mean() - half, abs=0.01)
    assert found.high == pytest.approx(values.mean() + half, abs=0.01)


def test_percentile_t_widens_on_the_side_of_the_tail() -> None:
    values = rng(1).exponential(1.0, 20)
    found = mean_interval(values, BOOTSTRAP, rng())
    assert found.high - found.estimate > 1.2 * (found.estimate - found.low)


def test_values_without_spread_have_no_error() -> None:
    assert not bootstrap_errors(np.full(9, 0.3), 1000, rng()).any()
    with pytest.raises(ValueError, match="two values"):
        bootstrap_errors(np.array([1.0]), 1000, rng())


def test_resampling_in_parts_gives_as_many_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.statistics._CHUNK", 100)
    assert len(bootstrap_errors(np.arange(30.0), 1001, rng())) == 1001


def test_trial_noise_known_answer() -> None:
    """Cells 0, 0 / 0, 2 (arms within blocks) without residual: interaction +-0.5, so 4 x 0.25 on one degree."""
    cells = np.array([[0.0, 0.0], [0.0, 2.0]])
    found = trial_noise(np.repeat(cells, 3, axis=0), np.repeat([0, 1], 3))
    assert found.variance == pytest.approx(1.0)
    assert found.degrees == 1


def test_trial_noise_ignores_arms_blocks_and_prompts() -> None:
    draw = rng(2)
    blocks = np.repeat(np.arange(4), 6)
    additive = draw.normal(size=(24, 1)) + draw.normal(size=4)[blocks][:, None] + draw.normal(size=3)
    assert trial_noise(additive, blocks).variance == pytest.approx(0.0, abs=1e-12)


def test_trial_noise_is_recovered_over_many_blocks() -> None:
    draw = rng(3)
    blocks = np.repeat(np.arange(400), 4)
    times = draw.normal(0, 0.02, (400, 4))[blocks] + draw.normal(0, 0.03, (1600, 4)) + draw.normal(0, 1, (1600, 1))
    found = trial_noise(times, blocks)
    assert math.sqrt(found.variance) == pytest.approx(0.02, rel=0.1)
    assert found.degrees == 3 * 399


def test_one_prompt_a_block_counts_all_of_it_as_shared() -> None:
    assert trial_noise(np.array([[0.0, 0.0], [0.0, 2.0]]), np.array([0, 1])).variance == pytest.approx(1.0)
    with pytest.raises(ValueError, match="2 blocks"):
        trial_noise(np.zeros((4, 2)), np.zeros(4, dtype=int))


def test_shared_noise_widens_by_its_t() -> None:
    """Prompts that agree exactly leave the trials' noise alone: 2 v / 4 blocks, t with 3 degrees."""
    found = paired_estimate(
        np.full(8, 0.1), np.arange(8) % 4, TrialNoise(0.0002, 3), Bootstrap(0.95, 100_000, 0), rng()
    )
    half = stats.t.ppf(0.975, 3) * math.sqrt(2 * 0.0002 / 4)
    assert found.high - found.low == pytest.approx(2 * half, rel=0.03)


@given(st.integers(0, 2**32 - 1), st.floats(-0.1, 0.1))
def test_p_value_agrees_with_the_interval(seed: int, shift: float) -> None:
    values = rng(seed).normal(shift, 0.1, 12)
    found = paired_estimate(values, np.arange(12) % 2, QUIET, Bootstrap(0.95, 1999, 0), rng(seed))
    outside = found.low > 0 or found.high < 0
    assert outside == (found.p_value <= 0.05) or abs(found.p_value - 0.05) < 0.002
    assert found.low <= found.mean <= found.high


def test_same_seed_same_numbers_whatever_the_order_of_calls() -> None:
    values = rng(5).normal(size=24)
    first = paired_estimate(values, np.arange(24) % 4, QUIET, BOOTSTRAP, BOOTSTRAP.stream("a"))
    paired_estimate(values, np.arange(24) % 4, QUIET, BOOTSTRAP, BOOTSTRAP.stream("b"))
    again = paired_estimate(values, np.arange(24) % 4, QUIET, BOOTSTRAP, BOOTSTRAP.stream("a"))
    assert first == again
    assert BOOTSTRAP.stream("a").random() != BOOTSTRAP.stream("b").random()


def test_ratio_of_sums_is_pooled() -> None:
    found = ratio_interval(np.array([20.0, 10.0]), np.array([10.0, 30.0]), BOOTSTRAP, rng())
    assert found.estimate == pytest.approx(30 / 40)
    assert 0 < found.low < 0.75 < found.high
    nothing = ratio_interval(np.zeros(3), np.ones(3), BOOTSTRAP, rng())
    assert (nothing.estimate, nothing.low, nothing.high) == (0.0, 0.0, 0.0)


def test_ratio_interval_covers() -> None:
    draw = rng(6)
    hits = 0
    for _ in range(400):
        steps = draw.integers(20, 60, 24).astype(float)
        accepted = draw.poisson(steps * draw.gamma(10, 0.15, 24)).astype(float)
        found = ratio_interval(accepted, steps, Bootstrap(0.95, 1000, 0), draw)
        hits += found.low <= 1.5 <= found.high
    assert 0.91 <= hits / 400 <= 0.99
