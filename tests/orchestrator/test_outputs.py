"""Known answers for what a run tells beside its winner."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from engines.base import Arm, Method
from orchestrator.metrics.crossover import crossing, crossings
from orchestrator.metrics.curve import cliffs, verify_curve
from orchestrator.metrics.economy import Terms, energy, mark_front, rates, usd_per_million
from orchestrator.metrics.positions import by_position
from orchestrator.metrics.summary import summarise
from orchestrator.outputs import CurvePoint, Outputs, Payoff, Rate
from orchestrator.records import Interval, TrialRecord, TrialState
from orchestrator.spec import SelectionSpec, SloSpec
from orchestrator.statistics import Bootstrap, Estimate
from tests.orchestrator.sample import frame, request, trial_record

PLAIN = Arm("autoregressive", "reference", Method.AUTOREGRESSIVE)
CHAIN = Arm("dflash", "reference", Method.DFLASH)
TREE = Arm("ddtree-15", "reference", Method.DDTREE, budget=15)
ARMS = (PLAIN, CHAIN, TREE)


def exact(value: float) -> Interval:
    return Interval(estimate=value, low=value, high=value)


def trial(arm: str, verify: float, drafted: int = 0, steps: int = 100, digest: str = "t", **more: Any) -> TrialRecord:
    stages = {"steps": float(steps), "draft": 0.1, "build": 0.0, "verify": verify, "commit": 0.0, "host": 0.1}
    counters = {"verify_steps": steps, "drafted": drafted}
    return trial_record(digest, **{"arm": arm, "counters": counters, "stages": stages | {"prefill": 0.0}} | more)


def point(width: int, verify_ms: float, half: float = 0.0, concurrency: int = 1) -> CurvePoint:
    return CurvePoint(
        arm=f"ddtree-{width - 1}",
        engine="reference",
        method="ddtree",
        concurrency=concurrency,
        width=width,
        packed=width * concurrency,
        verify_ms=Interval(estimate=verify_ms, low=verify_ms - half, high=verify_ms + half),
        step_ms=verify_ms,
    )


def test_the_curve_is_time_a_verify_forward_by_the_width_that_was_counted() -> None:
    """Trials of 10 and 14 ms: mean 12, Student's interval of two values; 1,500 drafted in 100 steps and the root."""
    trials = [
        trial("ddtree-15", 1.0, drafted=1500),
        trial("ddtree-15", 1.4, drafted=1500),
        trial("autoregressive", 0.8),
        trial("autoregressive", 9.0, state=TrialState.INVALID),
        trial("dflash", 0.0, steps=0),
    ]
    plain, tree = verify_curve(trials, ARMS, 0.95)
    assert (plain.width, plain.verify_ms) == (1, exact(8.0))
    assert (tree.width, tree.packed, tree.method) == (16, 16, "ddtree")
    half = stats.t.ppf(0.975, 1) * 0.2 * math.sqrt(2) / math.sqrt(2) * 10
    assert tree.verify_ms.estimate == pytest.approx(12.0)
    assert tree.verify_ms.high - tree.verify_ms.estimate == pytest.approx(half)
    assert tree.step_ms == pytest.approx(14.0)


def test_a_cliff_is_found_and_named() -> None:
    """Qwen3-8B on an RTX PRO 6000: 24.41 ms at 96 packed tokens, 30.25 at 128, a slow rise below."""
    widths = {16: 22.0, 32: 22.5, 48: 23.0, 64: 23.4, 80: 23.9, 96: 24.41, 128: 30.25}
    (cliff,) = cliffs([point(width, ms) for width, ms in widths.items()])
    assert (cliff.before, cliff.at) == (96, 128)
    assert cliff.jump == pytest.approx((30.25 - 24.41 - 0.0315 * 32) / 24.41, abs=0.02)
    assert cliff.name.startswith("reference at 1: verify cliff between 96 and 128 tokens, 24.41 to 30.25 ms (+")


@pytest.mark.parametrize(
    "curve",
    [
        [point(width, 10 + 0.1 * width) for width in (8, 16, 32, 64, 128)],
        [point(width, ms, half=4.0) for width, ms in ((8, 10.0), (16, 10.1), (32, 10.2), (64, 13.0))],
        [point(8, 10.0), point(16, 20.0)],
        [point(8, 10.0), point(16, 10.0, concurrency=2), point(32, 10.0), point(64, 20.0, concurrency=2)],
    ],
    ids=["steep but straight", "inside the noise", "too few widths", "two lines of two"],
)
def test_what_is_no_cliff(curve: list[CurvePoint]) -> None:
    assert cliffs(curve) == []


def gain(speedup: float, error: float = 0.01) -> Estimate:
    mean, half = math.log(speedup), stats.norm.ppf(0.975) * error
    return Estimate(mean, mean - half, mean + half, 0.0)


def crossed(*gains: Estimate, levels: tuple[int, ...] = (1, 4, 16, 64)) -> Any:
    return crossing("ddtree-15", "dflash", levels, gains, 0.95, np.random.default_rng(0))


def test_the_crossover_is_where_the_speedup_falls_to_one() -> None:
    """From 1.1 at 4 to 1/1.1 at 16: halfway on both logarithms, so at 8."""
    found = crossed(gain(1.5), gain(1.1), gain(1 / 1.1), gain(0.6))
    assert (found.payoff, found.sure_to) == (Payoff.CROSSES, 4)
    assert found.concurrency.estimate == pytest.approx(8.0)
    spread = stats.norm.ppf(0.975) * math.log(4) * 0.01 / math.log(1.21) / math.sqrt(2)
    assert math.log(found.concurrency.high / 8) == pytest.approx(spread, rel=0.15)
    assert math.log(8 / found.concurrency.low) == pytest.approx(spread, rel=0.15)


def test_the_crossovers_interval_covers() -> None:
    """Truth: log speed-up 0.4 - 0.2 log2(c) / ... zero at 4; errors of 0.05 at each level."""
    draw, hits = np.random.default_rng(1), 0
    levels = (1, 2, 4, 8, 16)
    truth = 0.3 - 0.15 * np.log2(levels)
    for _ in range(200):
        seen = [gain(math.exp(value + draw.normal(0, 0.05)), 0.05) for value in truth]
        found = crossing("a", "b", levels, seen, 0.95, draw).concurrency
        hits += found is not None and found.low <= 4 <= found.high
    assert 0.9 <= hits / 200 <= 0.99


@pytest.mark.parametrize(
    ("speedups", "error", "payoff", "sure_to"),
    [
        ((1.5, 1.4, 1.3, 1.2), 0.01, Payoff.THROUGHOUT, 64),
        ((0.9, 0.8, 0.7, 0.6), 0.01, Payoff.NEVER, None),
        ((1.3, 1.2, 1.1, 1.01), 0.05, Payoff.UNDECIDED, 16),
        ((1.3, 1.02, 1.3, 1.3), 0.05, Payoff.UNDECIDED, 1),
        ((1.02, 1.3, 1.3, 1.3), 0.05, Payoff.UNDECIDED, None),
    ],
)
def test_where_nothing_crosses_the_line_says_so(
    speedups: tuple[float, ...], error: float, payoff: Payoff, sure_to: int | None
) -> None:
    found = crossed(*(gain(value, error) for value in speedups))
    assert (found.payoff, found.concurrency, found.sure_to) == (payoff, None, sure_to)
    assert (found.measured_from, found.measured_to) == (1, 64)


def test_speculation_is_held_against_plain_decoding_and_trees_against_chains_of_the_same_engine() -> None:
    times = {("autoregressive", 1): 2.0, ("dflash", 1): 1.0, ("ddtree-15", 1): 0.8}
    times |= {("autoregressive", 8): 2.0, ("dflash", 8): 1.5, ("ddtree-15", 8): 2.4}
    rows = [
        request(arm=arm, concurrency=at, prompt_id=f"p{i}", block=i % 4, last=1.0 + seconds * (1 + 0.01 * (i % 3)))
        for (arm, at), seconds in times.items()
        for i in range(12)
    ]
    other = Arm("vllm", "vllm", Method.AUTOREGRESSIVE)
    found = {(c.arm, c.against): c for c in crossings(frame(*rows), (*ARMS, other), SelectionSpec(resamples=1000))}
    assert set(found) == {("dflash", "autoregressive"), ("ddtree-15", "autoregressive"), ("ddtree-15", "dflash")}
    assert found["dflash", "autoregressive"].payoff is Payoff.THROUGHOUT
    tree = found["ddtree-15", "dflash"]
    assert tree.payoff is Payoff.CROSSES
    share = math.log(1 / 0.8) / (math.log(1 / 0.8) + math.log(2.4 / 1.5))
    assert tree.concurrency is not None
    assert tree.concurrency.estimate == pytest.approx(8**share)


def rate(user: float, gpu: float) -> Rate:
    return Rate(
        arm="a",
        concurrency=1,
        gpus=1,
        tok_s_user=exact(user),
        tok_s_gpu=exact(gpu),
        on_front=False,
        goodput_rps=None,
        goodput_tok_s=None,
        usd_per_million=None,
        joules_per_token=None,
    )


def test_the_front_holds_what_nothing_beats_in_both() -> None:
    found = mark_front([rate(100, 100), rate(50, 400), rate(40, 390), rate(100, 90), rate(10, 500), rate(10, 500)])
    assert [item.on_front for item in found] == [True, True, False, False, True, True]


def test_cost_of_a_million_tokens() -> None:
    """2 USD a GPU and hour, two GPUs, 1,000 tok/s within the limits: 1e6 tokens take 1,000 s of both."""
    assert usd_per_million(Terms(2, 2.0, SloSpec()), 1000.0) == pytest.approx(1000 / 3600 * 2 * 2.0)
    for terms, goodput in [
        (Terms(2, None, SloSpec()), 1000.0),
        (Terms(0, 2.0, SloSpec()), 1000.0),
        (Terms(2, 2.0, SloSpec()), None),
        (Terms(2, 2.0, SloSpec()), 0.0),
    ]:
        assert usd_per_million(terms, goodput) is None


def test_energy_is_the_integral_of_board_power_over_the_window() -> None:
    """100 W rising to 300 W in 4 s: over 1 to 3 s, from 150 to 250 W, 400 J."""
    samples = pd.DataFrame({"time": [0.0, 2.0, 4.0], "gpu_power_w": [100.0, 200.0, 300.0]})
    assert energy(samples, (1.0, 3.0)) == pytest.approx(400.0)
    assert energy(samples.drop(columns="gpu_power_w"), (1.0, 3.0)) is None


def test_rates_of_an_arm() -> None:
    """Two requests of 11 tokens one after the other, 0 to 3 and 3 to 6 s; one token a first chunk at 1 s, then 2 s of
    10 tokens. The second misses a limit of 2.5 s, so half of the tokens are good."""
    rows = frame(
        request(trial="t0", prompt_id="a"),
        request(trial="t0", prompt_id="b", scheduled=3.0, sent=3.0, first=4.2, last=6.2),
    )
    slo = SloSpec(ttft_ms=1100)
    records = [trial("autoregressive", 1.0, digest="t0")]
    summaries = summarise(rows, records, (PLAIN,), slo, Bootstrap(0.95, 1000, 0))
    samples = pd.DataFrame({"time": [0.0, 10.0], "gpu_power_w": [220.0, 220.0]})
    (found,) = rates(summaries, records, rows, lambda _: samples, Terms(2, 3.0, slo))
    assert found.tok_s_user.estimate == pytest.approx(5.0)
    assert found.tok_s_gpu.estimate == pytest.approx(22 / 6.2 / 2)
    assert found.goodput_tok_s == pytest.approx(11 / 6.2)
    assert found.usd_per_million == pytest.approx(1e6 * 3.0 * 2 / 3600 / (11 / 6.2))
    assert found.joules_per_token == pytest.approx(220 * 6.2 / 22)
    assert found.on_front
    (bare,) = rates(summaries, records, rows, lambda _: pd.DataFrame({"time": [0.0]}), Terms(0, None, SloSpec()))
    assert (bare.goodput_tok_s, bare.usd_per_million, bare.joules_per_token) == (None, None, None)
    assert bare.tok_s_gpu.estimate == pytest.approx(22 / 6.2)


def test_acceptance_by_task_depth_and_position() -> None:
    """Chunks 1, 4, 2, 1 begin at 1, 5 and 7 tokens; one step from 300 on belongs to the second stretch."""
    chunks = [1, 4, 2, 1]
    first = request(arm="ddtree-15", chunk_tokens=chunks, verify_steps=3, drafted=45)
    long = request(arm="ddtree-15", prompt_id="b", chunk_tokens=[300, 2], verify_steps=1, drafted=15)
    merged = request(arm="ddtree-15", prompt_id="c", chunk_tokens=[1, 9], verify_steps=3, drafted=45)
    plain = request(drafted=0)
    early, late = by_position(frame(first, long, merged, plain))
    assert (early.arm, early.task, early.start, early.end, early.steps) == ("ddtree-15", "chat", 0, 256, 3)
    assert early.acceptance_length == pytest.approx(7 / 3)
    assert early.by_depth == pytest.approx([2 / 3, 1 / 3, 1 / 3])
    assert sum(early.by_depth) == pytest.approx(early.acceptance_length - 1)
    assert (late.start, late.end, late.steps, late.acceptance_length) == (256, 1024, 1, 2.0)


def test_a_run_of_before_there_were_chunks_has_no_positions() -> None:
    assert by_position(frame(request()).drop(columns="chunk_tokens")) == []
    assert by_position(frame(request(arm="x", chunk_tokens=float("nan")))) == []


def test_outputs_read_back_as_written() -> None:
    made = Outputs(
        slo={"ttft_ms": 5.0},
        price_per_gpu_hour=2.0,
        curve=[point(16, 10.0)],
        cliffs=[],
        crossings=[crossed(gain(1.5), gain(1.1), gain(0.9), gain(0.8))],
        rates=[rate(1, 2)],
        positions=by_position(frame(request(arm="x", chunk_tokens=[1, 2], verify_steps=1))),
    )
    assert Outputs.model_validate_json(made.model_dump_json()) == made
