"""A drafter that is wired wrong drafts almost nothing (sglang#27924: 1.42 instead of 6.30): that is no result."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.decision import decide
from orchestrator.plan import Plan
from orchestrator.records import Decision
from orchestrator.spec import ModelSpec
from orchestrator.wiring import acceptance_floor
from tests.orchestrator.test_decision import gates, plan, records, requests


def decided(sweep: Plan, accepted: int) -> Decision:
    """Every speculative arm accepts so many drafted tokens in 100 steps."""
    rows = requests(sweep)
    rows["accepted"] = rows["accepted"].where(rows["arm"] == "autoregressive", accepted)
    return decide(sweep, records(sweep), rows, gates(sweep))


def with_floor(floor: float | None) -> Plan:
    sweep = plan()
    profile = sweep.spec.profiles["local"]
    models = profile.models.model_copy(update={"acceptance_floor": floor})
    profiles = {"local": profile.model_copy(update={"models": models})}
    return replace(sweep, spec=sweep.spec.model_copy(update={"profiles": profiles}))


def test_below_the_floor_nothing_is_ranked() -> None:
    found = decided(with_floor(2.0), accepted=42)
    assert found.arm == "autoregressive"
    assert set(found.points[0].excluded) == {"dflash", "ddtree-budget=7", "ddtree-budget=15"}
    assert found.points[0].excluded["dflash"] == (
        "acceptance length 1.42 is below the drafter's floor 2.00: its wiring looks broken"
    )


@pytest.mark.parametrize(("floor", "accepted"), [(2.0, 530), (None, 42)])
def test_above_it_and_without_one_arms_are_ranked(floor: float | None, accepted: int) -> None:
    assert decided(with_floor(floor), accepted).arm == "ddtree-budget=15"


def test_the_floor_is_half_of_what_the_card_measured(tmp_path: Path) -> None:
    card = {"evaluations": [{"linear": 2.0}, {"linear": 3.2}]}
    (tmp_path / "training.json").write_text(json.dumps(card))
    models = ModelSpec(target="t", drafter="d")
    assert acceptance_floor(models, str(tmp_path)) == pytest.approx(2.1)
    assert acceptance_floor(models.model_copy(update={"acceptance_floor": 1.5}), str(tmp_path)) == 1.5


@pytest.mark.parametrize("text", ["{", "{}", '{"evaluations": []}', "[]"])
def test_a_drafter_without_such_a_card_has_no_floor(tmp_path: Path, text: str) -> None:
    (tmp_path / "training.json").write_text(text)
    assert acceptance_floor(ModelSpec(target="t"), str(tmp_path)) is None
    assert acceptance_floor(ModelSpec(target="t"), str(tmp_path / "absent")) is None
