from typing import Any

import numpy as np
import pandas as pd
import pytest

from engines.base import Arm, Method
from orchestrator.decision import decide
from orchestrator.judgement import Point
from orchestrator.plan import Plan
from orchestrator.records import Decision, GateResult, TrialRecord, TrialState, Verdict
from orchestrator.selection import Measurements
from orchestrator.spec import SelectionSpec
from tests.orchestrator.sample import failed, frame, request, trial_record
from tests.orchestrator.test_plan import plan as planned

GAINS = {"autoregressive": 1.0, "dflash": 1.2, "ddtree-budget=7": 1.3, "ddtree-budget=15": 1.4}
SELECTION = {"resamples": 2000, "seed": 11}


def plan(**changes: Any) -> Plan:
    prompts = {"set": "orchestrate", "count": 48, "seed": 3}
    workload = {"prompts": prompts, "max_tokens": 12, "concurrency": [1, 4]}
    fields: dict[str, Any] = {"workload": workload, "blocks": {"count": 4, "seed": 5}, "selection": SELECTION} | changes
    return planned(**fields)


def records(sweep: Plan) -> list[TrialRecord]:
    return [
        trial_record(trial.digest, arm=trial.arm.name, concurrency=trial.concurrency, block=trial.block)
        for trial in sweep.trials
    ]


def requests(sweep: Plan, gains: dict[str, float] | None = None, seed: int = 0) -> pd.DataFrame:
    """100 tokens a request at 10 ms over the arm's gain, 1 % noise, prompts that differ by 10 %."""
    draw = np.random.default_rng(seed)
    content: dict[str, float] = {}
    rows = []
    for trial in sweep.trials:
        for turn, prompt in enumerate(trial.prompts):
            factor = content.setdefault(prompt.prompt_id, float(np.exp(draw.normal(0, 0.1))))
            token = 0.01 * factor / (gains or GAINS)[trial.arm.name] * float(np.exp(draw.normal(0, 0.01)))
            keys = {
                "trial": trial.digest,
                "arm": trial.arm.name,
                "concurrency": trial.concurrency,
                "block": trial.block,
            }
            times = {"scheduled": 5.0 * turn, "sent": 5.0 * turn, "first": 5.0 * turn, "last": 5.0 * turn + 100 * token}
            counts = {"output_tokens": 101, "verify_steps": 100}
            rows.append(request(prompt_id=prompt.prompt_id, task=prompt.task, **keys, **times, **counts))
    return frame(*rows)


def gates(sweep: Plan, **failing: str) -> list[GateResult]:
    return [
        GateResult(
            arm=arm.name,
            prompts=48,
            exact=48,
            near_ties=0,
            violations=0,
            near_tie_gap=0.0,
            passed=arm.method.value not in failing,
            reason=failing.get(arm.method.value, ""),
        )
        for arm in sweep.arms
        if arm.speculative
    ]


def decision(sweep: Plan, **changes: Any) -> Decision:
    inputs: dict[str, Any] = {"trials": records(sweep), "requests": requests(sweep), "gates": gates(sweep)} | changes
    return decide(sweep, **inputs)


def test_a_winner_golden() -> None:
    found = decision(plan())
    assert (found.verdict, found.arm, found.concurrency) == (Verdict.WINNER, "ddtree-budget=15", 1)
    assert found.sentence == (
        "ddtree-budget=15 decodes 1.40x as fast as autoregressive at concurrency 1 "
        "(95 % CI 1.39 to 1.41, 24 held-out prompts)"
    )
    assert [point.verdict for point in found.points] == [Verdict.WINNER, Verdict.WINNER]
    assert [c.arm for c in found.points[0].comparisons] == ["dflash", "ddtree-budget=7", "ddtree-budget=15"]
    for comparison in found.points[0].comparisons:
        assert comparison.speedup.estimate == pytest.approx(GAINS[comparison.arm], rel=0.01)
        assert comparison.speedup.low < comparison.speedup.estimate < comparison.speedup.high
        assert comparison.p_adjusted < 0.05
        assert comparison.selection_speedup == pytest.approx(GAINS[comparison.arm], rel=0.02)
    assert len(found.summaries) == 8
    assert found.invalid_trials == []
    assert found.unchecked == ""
    assert Decision.model_validate_json(found.model_dump_json()) == found


def test_the_decision_is_the_same_for_the_same_input() -> None:
    sweep = plan()
    shuffled = requests(sweep).sample(frac=1, random_state=1)
    assert decision(sweep).points == decision(sweep, requests=shuffled).points


def test_the_point_asked_for_decides() -> None:
    sweep = plan(selection=SELECTION | {"at_concurrency": 4})
    found = decision(sweep)
    assert found.concurrency == 4
    assert "at concurrency 4" in found.sentence


def test_a_tie_says_what_to_keep_and_why() -> None:
    sweep = plan()
    found = decision(sweep, requests=requests(sweep, dict.fromkeys(GAINS, 1.0)))
    assert (found.verdict, found.arm) == (Verdict.TIE, "autoregressive")
    assert found.points[0].candidate == "dflash"
    assert found.sentence == (
        "tie at concurrency 1: keep autoregressive; the best other arm, dflash, decodes 1.01x as fast as "
        "autoregressive at concurrency 1 (95 % CI 1.00 to 1.01, 24 held-out prompts), "
        "where a winner's interval lies above 1.02"
    )


def test_a_gain_inside_the_margin_is_a_tie() -> None:
    sweep = plan()
    small = requests(sweep, dict.fromkeys(GAINS, 1.015) | {"autoregressive": 1.0})
    assert decision(sweep, requests=small).verdict is Verdict.TIE
    narrow = plan(selection=SELECTION | {"margin": 0.0})
    assert decision(
        narrow, requests=requests(narrow, dict.fromkeys(GAINS, 1.015) | {"autoregressive": 1.0})
    ).verdict is (Verdict.WINNER)


def test_a_failed_gate_disqualifies_and_is_told() -> None:
    sweep = plan()
    found = decision(sweep, gates=gates(sweep, ddtree="3 of 48 texts differ"))
    assert found.arm == "dflash"
    assert found.points[0].excluded["ddtree-budget=15"] == "equivalence gate failed: 3 of 48 texts differ"
    assert [c.arm for c in found.points[0].comparisons] == ["dflash"]
    assert len(found.summaries) == 8
    none_left = decision(sweep, gates=gates(sweep, ddtree="a", dflash="b"))
    assert none_left.verdict is Verdict.TIE
    assert "no other arm could be ranked (dflash: equivalence gate failed: b; " in none_left.sentence


def test_an_arm_without_a_gate_has_not_passed_one() -> None:
    found = decision(plan(), gates=[])
    assert found.verdict is Verdict.TIE
    assert found.points[0].excluded["dflash"] == "no equivalence gate was run for it"


def test_an_unchecked_workload_is_ranked_and_says_so() -> None:
    prompts = {"set": "orchestrate", "count": 48, "seed": 3}
    sampled = decision(plan(workload={"prompts": prompts, "temperature": 0.7}), gates=[])
    assert sampled.verdict is Verdict.WINNER
    assert sampled.gates == []
    assert sampled.unchecked == "the workload is sampled (temperature 0.7)"
    assert sampled.sentence.endswith("; equivalence was not checked: the workload is sampled (temperature 0.7)")
    off = decision(plan(equivalence={"enabled": False}), gates=[])
    assert off.verdict is Verdict.WINNER
    assert off.sentence.endswith("; equivalence was not checked: the gate is switched off")


@pytest.mark.parametrize("missing", [True, False])
def test_an_arm_with_a_bad_trial_is_not_ranked_at_that_point(missing: bool) -> None:
    sweep = plan()
    bad = next(t for t in sweep.trials if (t.arm.name, t.concurrency, t.block) == ("ddtree-budget=15", 1, 2))
    stored = [r for r in records(sweep) if r.digest != bad.digest]
    if not missing:
        marked = {"state": TrialState.INVALID, "reason": "client lag 9 ms"}
        stored += [r.model_copy(update=marked) for r in records(sweep) if r.digest == bad.digest]
    kept = requests(sweep)
    found = decision(sweep, trials=stored, requests=kept[kept["trial"] != bad.digest])
    why = "not measured" if missing else "client lag 9 ms"
    assert found.invalid_trials == [f"ddtree-budget=15 at concurrency 1, block 2: {why}"]
    assert [point.arm for point in found.points] == ["ddtree-budget=7", "ddtree-budget=15"]
    assert found.points[0].excluded == {"ddtree-budget=15": f"invalid trial in block 2: {why}"}


def test_an_invalid_baseline_leaves_no_decision() -> None:
    sweep = plan()
    stored = [r for r in records(sweep) if (r.arm, r.concurrency, r.block) != ("autoregressive", 1, 0)]
    found = decision(sweep, trials=stored)
    assert (found.verdict, found.arm) == (Verdict.INVALID, None)
    assert found.sentence == (
        "no decision at concurrency 1: the baseline autoregressive is out (invalid trial in block 0: not measured)"
    )
    assert found.points[1].verdict is Verdict.WINNER


def test_nothing_measured_is_invalid() -> None:
    found = decision(plan(), trials=[], requests=pd.DataFrame())
    assert found.verdict is Verdict.INVALID
    assert found.summaries == []
    assert len(found.invalid_trials) == 32


def test_an_arm_that_fails_requests_is_not_ranked() -> None:
    sweep = plan()
    answered = requests(sweep)
    lost = answered.index[(answered["arm"] == "ddtree-budget=15") & (answered["concurrency"] == 1)][0]
    answered.loc[lost, "error"] = "timed out"
    found = decision(sweep, requests=answered)
    assert found.points[0].arm == "ddtree-budget=7"
    assert found.points[0].excluded == {"ddtree-budget=15": "1 of 48 requests failed"}
    assert found.points[1].arm == "ddtree-budget=15"


def test_a_baseline_that_fails_requests_leaves_no_decision() -> None:
    sweep = plan()
    answered = requests(sweep)
    own = answered["arm"] == "autoregressive"
    silent = frame(
        *[
            failed(arm="autoregressive", trial=row["trial"], prompt_id=row["prompt_id"], concurrency=row["concurrency"])
            for _, row in answered[own].iterrows()
        ]
    )
    found = decision(sweep, requests=pd.concat([answered[~own], silent], ignore_index=True))
    assert found.verdict is Verdict.INVALID
    assert "48 of 48 requests failed" in found.sentence


def test_too_few_prompts_leave_no_decision() -> None:
    sweep = planned(workload={"prompts": {"count": 6}, "max_tokens": 12}, selection=SELECTION)
    found = decision(sweep)
    assert found.verdict is Verdict.INVALID
    assert "one half has 3 prompts" in found.sentence


def test_another_baseline_than_plain_decoding() -> None:
    sweep = plan(selection=SELECTION | {"baseline": "dflash"})
    found = decision(sweep)
    assert found.arm == "ddtree-budget=15"
    assert "1.16x as fast as dflash" in found.sentence
    assert decision(sweep, gates=gates(sweep, dflash="3 of 48 texts differ")).verdict is Verdict.INVALID


def synthetic(gains: list[float], shared: float, draw: np.random.Generator) -> Measurements:
    """48 prompts in 4 blocks; 3 % noise a request and `shared` noise a trial."""
    blocks = np.arange(48) % 4
    arms = tuple(Arm(f"a{i}", "reference", Method.AUTOREGRESSIVE) for i in range(len(gains)))
    times = draw.normal(0, 0.03, (48, len(gains))) + draw.normal(0, shared, (4, len(gains)))[blocks]
    step = np.exp(times) / np.array(gains)
    tokens = np.full(step.shape, 100.0)
    return Measurements(arms, blocks, np.full(48, "chat"), step * tokens, tokens, step)


@pytest.mark.parametrize("arms", [2, 6])
def test_equal_arms_tie(arms: int) -> None:
    """Even without a margin, at most 5 % false winners; with the default one, none."""
    draw = np.random.default_rng(0)
    sweeps = [synthetic([1.0] * arms, 0.01, draw) for _ in range(150)]
    verdicts = {0.0: 0, 0.02: 0}
    for margin in verdicts:
        point = Point(1, SelectionSpec(baseline="a0", margin=margin, resamples=1000), {})
        verdicts[margin] = sum(point.judge(sweep).verdict is Verdict.WINNER for sweep in sweeps)
    assert verdicts[0.0] <= 12
    assert verdicts[0.02] <= 1


def test_intervals_cover_what_trials_share() -> None:
    """At 3 % of shared noise; intervals from the prompts alone would cover half."""
    draw = np.random.default_rng(2)
    point = Point(1, SelectionSpec(baseline="a0", resamples=1000), {})
    decided = [point.judge(synthetic([1.0, 1.1, 1.3], 0.03, draw)) for _ in range(100)]
    truth = {"a1": 1.1, "a2": 1.3}
    covered = [c.speedup.low <= truth[c.arm] <= c.speedup.high for p in decided for c in p.comparisons]
    assert np.mean(covered) >= 0.9


def test_a_real_gain_wins() -> None:
    draw = np.random.default_rng(1)
    point = Point(1, SelectionSpec(baseline="a0", resamples=1000), {})
    found = [point.judge(synthetic([1.0, 1.05, 1.2], 0.005, draw)) for _ in range(20)]
    assert all((p.verdict, p.arm) == (Verdict.WINNER, "a2") for p in found)
