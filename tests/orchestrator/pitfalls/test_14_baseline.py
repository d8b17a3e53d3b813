"""A weak baseline, or one with other flags: here it is an arm like the others, on the same engine and deployment."""

import pytest
from pydantic import ValidationError

from engines.base import Arm, Method
from orchestrator.equivalence import compare_texts, judge
from orchestrator.spec import ArmSpec, SweepSpec
from tests.orchestrator.sample import frame, request
from tests.orchestrator.sweeps import fake_sweep
from tests.orchestrator.test_decision import plan


@pytest.mark.parametrize("field", ["arguments", "environment", "interpreter", "dtype", "threads", "device"])
def test_an_arm_has_no_flags_of_its_own(field: str) -> None:
    with pytest.raises(ValidationError, match="Extra inputs"):
        ArmSpec.model_validate({"method": "autoregressive", field: "x"})


def test_all_arms_of_an_engine_share_its_deployment() -> None:
    assert len({id(trial.deployment) for trial in plan().trials}) == 1


def test_the_baseline_is_measured_in_the_same_sweep() -> None:
    sweep = fake_sweep(arms=[{"method": "dflash"}, {"method": "ddtree", "budget": 7}])
    with pytest.raises(ValidationError, match="is no arm"):
        SweepSpec.model_validate(sweep)


def test_speculation_without_plain_decoding_on_its_engine_passes_no_gate() -> None:
    """Held against another engine's baseline it could win by that engine's weakness."""
    arms = (Arm("plain", "vllm", Method.AUTOREGRESSIVE), Arm("tree", "reference", Method.DDTREE, budget=7))
    rows = frame(*(request(arm=arm.name, prompt_id=p) for arm in arms for p in "abc"))
    ((result,), _) = judge(compare_texts(rows, arms, "plain"), {}, 0.0)
    assert not result.passed
    assert result.reason == "no autoregressive arm on the same engine to compare with"
