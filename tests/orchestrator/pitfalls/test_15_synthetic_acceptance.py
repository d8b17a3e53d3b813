"""Acceptance that is set and not drafted (SGLANG_SIMULATE_ACC_LEN, vllm#39359), and averages over a server's life."""

from dataclasses import replace
from typing import Any

import pytest

from engines.base import Arm, EngineError, Method, SpecCounters
from orchestrator.records import TrialState
from orchestrator.slots import Slot
from orchestrator.synthetic import refuse_synthetic
from tests.orchestrator.acting import ANY_LOAD, MATCH, deployment, trial

TREE = Arm("tree", "sglang", Method.DDTREE, budget=7)
CONFIG = '{"method": "dflash", "rejection_sample_method": "synthetic", "synthetic_acceptance_length": 3.5}'


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("environment", {"SGLANG_SIMULATE_ACC_LEN": "3.5"}),
        ("inherited", {"SGLANG_SIMULATE_ACC_LEN": "4"}),
        ("arguments", ("--speculative-config", CONFIG)),
        ("options", {"rejection_sample_method": "synthetic"}),
        ("settings", {"synthetic_acceptance_rate": 0.7}),
        ("settings", {"speculative_config": CONFIG}),
    ],
)
def test_synthetic_acceptance_is_refused_wherever_it_is_set(place: str, value: Any) -> None:
    deployed = deployment(**{place: value}) if place in ("environment", "arguments") else deployment()
    arm = replace(TREE, options=value) if place == "options" else TREE
    settings, inherited = (value if place == name else {} for name in ("settings", "inherited"))
    with pytest.raises(EngineError, match="acceptance is synthetic"):
        refuse_synthetic(arm, deployed, settings, inherited)


@pytest.mark.parametrize("value", ["", "0", "-1"])
def test_what_is_off_is_off(value: str) -> None:
    settings = {"rejection_sample_method": "strict", "synthetic_acceptance_rate": None, "simulated": True}
    refuse_synthetic(TREE, deployment(), settings, {"SGLANG_SIMULATE_ACC_LEN": value})


async def test_a_slot_measures_nothing_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_SIMULATE_ACC_LEN", "3.5")
    slot = Slot("slot-0", MATCH, ANY_LOAD)
    await slot.open()
    try:
        measured = await slot.run(trial(deployed=deployment()))
    finally:
        await slot.close()
    assert measured.record.state is not TrialState.VALID
    assert measured.record.reason.startswith("arm 'subject': acceptance is synthetic (SGLANG_SIMULATE_ACC_LEN=3.5)")
    assert measured.requests.empty


def test_a_trials_acceptance_is_a_difference_and_not_the_servers_life() -> None:
    """A server that accepted 3 a step before: cumulative, this trial's 1 would read as 2."""
    before, after = SpecCounters(100, 700, 300, 400), SpecCounters(200, 1400, 400, 600)
    assert (after - before).acceptance_length == 2.0
    assert after.acceptance_length == 3.0
