import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engines.base import Deployment
from orchestrator.errors import InputError
from orchestrator.plan import Plan, make_plan, thin_points
from orchestrator.prompts import load_prompts
from orchestrator.spec import SweepSpec
from tests.orchestrator.sweeps import fake_sweep

DEPLOYMENT = Deployment(
    software="fake 1",
    interpreter="python",
    target="/models/target",
    target_digest="t",
    drafter="/models/drafter",
    drafter_digest="d",
    device="cpu",
    dtype="float32",
    threads=1,
    max_batch=4,
    max_context=512,
)


def plan(deployment: Deployment = DEPLOYMENT, **changes: Any) -> Plan:
    spec = SweepSpec.model_validate(fake_sweep(**changes))
    return make_plan(spec, "local", {"fake": deployment}, load_prompts(spec.workload.prompts))


def workload(**changes: Any) -> dict[str, Any]:
    return fake_sweep()["workload"] | changes


def test_every_arm_runs_every_prompt_once_at_each_concurrency() -> None:
    planned = plan(workload=workload(concurrency=[1, 4]))
    for arm in planned.arms:
        for concurrency in (1, 4):
            trials = [t for t in planned.trials if t.arm == arm and t.concurrency == concurrency]
            ids = [prompt.prompt_id for trial in trials for prompt in trial.prompts]
            assert len(ids) == len(set(ids)) == 8


def test_a_block_gives_every_arm_the_same_prompts() -> None:
    for unit in plan().units:
        assert len({trial.prompts for trial in unit.trials}) == 1


def test_order_of_arms_differs_between_blocks_and_repeats_with_the_seed() -> None:
    many = plan(workload=workload(prompts={"count": 32}), blocks={"count": 8, "seed": 5})
    orders = [tuple(trial.arm.name for trial in unit.trials) for unit in many.units]
    assert len(set(orders)) > 1
    assert many.digest == plan(workload=workload(prompts={"count": 32}), blocks={"count": 8, "seed": 5}).digest
    other = plan(workload=workload(prompts={"count": 32}), blocks={"count": 8, "seed": 6})
    assert other.digest != many.digest


def test_digests_are_distinct_also_for_equal_arms_of_two_names() -> None:
    arms = [{"method": "autoregressive"}, {"method": "dflash", "name": "a"}, {"method": "dflash", "name": "b"}]
    planned = plan(arms=arms)
    assert len({trial.digest for trial in planned.trials}) == len(planned.trials) == 6


def test_what_decides_a_trial_changes_its_digest_and_a_place_does_not() -> None:
    base = [t.digest for t in plan().trials]
    moved = replace(DEPLOYMENT, interpreter="other/python", target="/elsewhere", ready_timeout_s=5.0)
    assert [t.digest for t in plan(moved).trials] == base
    for change in ({"software": "fake 2"}, {"target_digest": "x"}, {"dtype": "bfloat16"}, {"threads": 2}):
        assert not set(base) & {t.digest for t in plan(replace(DEPLOYMENT, **change)).trials}
    assert not set(base) & {t.digest for t in plan(workload=workload(max_tokens=13)).trials}


def test_a_sweep_with_fresh_engines_is_another_run_of_the_same_trials() -> None:
    kept, restart = (plan(blocks={"count": 2, "seed": 5, "restart": restart}) for restart in (False, True))
    assert kept.trials == restart.trials
    assert kept.digest == plan().digest != restart.digest


def test_another_accelerator_is_another_measurement() -> None:
    local = fake_sweep()["profiles"]["local"]
    plans = [plan(profiles={"local": local | {"match": {"accelerator": kind}}}) for kind in ("H200", "RTX-PRO-6000")]
    assert not {t.digest for t in plans[0].trials} & {t.digest for t in plans[1].trials}


def test_an_added_arm_leaves_the_digests_of_the_others() -> None:
    arms = fake_sweep()["arms"]
    more = [*arms, {"method": "ddtree", "budget": 31}]
    assert {t.digest for t in plan().trials} < {t.digest for t in plan(arms=more).trials}


def test_an_open_loops_arrivals_are_the_blocks_and_decide_a_trial() -> None:
    poisson = {"pattern": "poisson", "rate": 4.0}
    planned = plan(workload=workload(arrivals=poisson))
    for unit in planned.units:
        assert len({trial.arrivals for trial in unit.trials}) == 1, "every arm meets the same arrivals"
        assert len(unit.trials[0].arrivals) == len(unit.trials[0].prompts)
        assert {arrival.max_tokens for arrival in unit.trials[0].arrivals} == {12}
    assert len({unit.trials[0].arrivals for unit in planned.units}) == len(planned.units)
    assert all(trial.arrivals == () for trial in plan().trials)
    digests = {trial.digest for trial in planned.trials}
    assert digests == {trial.digest for trial in plan(workload=workload(arrivals=poisson)).trials}
    for other in ({}, poisson | {"rate": 5.0}, poisson | {"seed": 1}):
        assert not digests & {trial.digest for trial in plan(workload=workload(arrivals=other)).trials}


def test_a_trace_is_replayed_once_over_all_blocks(tmp_path: Path) -> None:
    lines = [{"timestamp": 100 * n, "input_length": n, "output_length": n + 1} for n in range(9)]
    trace = tmp_path / "trace.jsonl"
    trace.write_text("\n".join(map(json.dumps, lines)))
    replay = workload(arrivals={"pattern": "trace", "trace": str(trace)})
    first, second = (unit.trials[0].arrivals for unit in plan(workload=replay).units)
    assert [arrival.at for arrival in second] == pytest.approx([0.0, 0.1, 0.2, 0.3])
    assert [arrival.max_tokens for arrival in first + second] == [1, 2, 3, 4, 5, 6, 7, 8]
    digests = [trial.digest for trial in plan(workload=replay).trials]
    moved = trace.rename(tmp_path / "moved.jsonl")
    replay["arrivals"]["trace"] = str(moved)
    assert [trial.digest for trial in plan(workload=replay).trials] == digests, "its content decides, not its place"
    moved.write_text("\n".join(map(json.dumps, lines[:7])))
    with pytest.raises(InputError, match=r"moved\.jsonl: 7 requests for 8 prompts; none is replayed twice"):
        plan(workload=replay)


def test_blocks_too_small_for_their_concurrency_are_refused_before_anything_starts() -> None:
    with pytest.raises(InputError, match=r"2 blocks of 4 prompts cannot keep 5 requests in flight; lower blocks\.max"):
        plan(workload=workload(concurrency=[1, 5]))


def test_points_that_are_mostly_filling_and_emptying_are_told() -> None:
    prompts = {"set": "orchestrate", "count": 10}
    closed = workload(concurrency=[1, 2, 3, 4], prompts=prompts)
    third, fourth = thin_points(plan(workload=closed, blocks={"count": 2}))
    assert third.startswith("concurrency 3: a block's 5 prompts keep all 3 requests in flight for under half")
    assert fourth.startswith("concurrency 4: ")
    paced = workload(concurrency=[4], prompts=prompts, arrivals={"pattern": "poisson", "rate": 5.0})
    assert thin_points(plan(workload=paced, blocks={"count": 2})) == []
