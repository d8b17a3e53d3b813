import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from engines.base import Method
from orchestrator.errors import InputError
from orchestrator.spec import SweepSpec, dump_spec, load_spec
from tests.orchestrator.sweeps import fake_sweep, write_sweep


def refused(sweep: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as caught:
        SweepSpec.model_validate(sweep)
    return str(caught.value)


def test_grid_becomes_one_arm_for_each_combination() -> None:
    arms = [{"method": "autoregressive"}, {"method": "ddtree", "grid": {"budget": [7, 15], "chain": [False, True]}}]
    spec = SweepSpec.model_validate(fake_sweep(arms=arms))
    assert [arm.label() for arm in spec.expanded_arms()] == [
        "autoregressive",
        "ddtree-budget=7",
        "ddtree-budget=7-chain",
        "ddtree-budget=15",
        "ddtree-budget=15-chain",
    ]


def test_grid_values_that_are_not_fields_become_options() -> None:
    arms = [{"method": "autoregressive"}, {"method": "dflash", "grid": {"step_ms": [1, 2]}}]
    spec = SweepSpec.model_validate(fake_sweep(arms=arms))
    assert [arm.options for arm in spec.expanded_arms()] == [{}, {"step_ms": 1}, {"step_ms": 2}]


def test_grid_values_are_checked_like_written_ones() -> None:
    arms = [{"method": "autoregressive"}, {"method": "ddtree", "grid": {"budget": [0]}}]
    assert "greater than or equal to 1" in refused(fake_sweep(arms=arms))


@pytest.mark.parametrize(
    ("arm", "complaint"),
    [
        ({"method": "ddtree"}, "`budget` is required"),
        ({"method": "dflash", "budget": 7}, "not allowed for any other"),
        ({"method": "dflash", "chain": True}, "option of method ddtree"),
        ({"method": "medusa"}, "autoregressive"),
        ({"method": "ddtree", "budget": 7, "width": 8}, "Extra inputs"),
        ({"method": "ddtree", "budget": 7, "name": "a b"}, "pattern"),
        ({"method": "ddtree", "name": "x", "grid": {"budget": [7]}}, "remove `name`"),
    ],
)
def test_bad_arm_is_refused(arm: dict[str, Any], complaint: str) -> None:
    assert complaint in refused(fake_sweep(arms=[{"method": "autoregressive"}, arm]))


def test_two_arms_of_one_name_are_refused() -> None:
    assert "two arms are named 'dflash'" in refused(
        fake_sweep(arms=[{"method": "autoregressive"}, {"method": "dflash"}, {"method": "dflash"}])
    )


def test_baseline_must_be_an_arm() -> None:
    assert "is no arm" in refused(fake_sweep(selection={"baseline": "plain"}))


def test_decision_point_must_be_measured() -> None:
    assert "at_concurrency 4" in refused(fake_sweep(selection={"at_concurrency": 4}))


def test_default_engine_of_a_profile_must_be_listed() -> None:
    profile = fake_sweep()["profiles"]["local"] | {"engine": "sglang"}
    assert "is not among `engines`" in refused(fake_sweep(profiles={"local": profile}))


@pytest.mark.parametrize(
    ("arrivals", "complaint"),
    [
        ({"pattern": "burst"}, "'closed', 'constant', 'poisson', 'gamma', 'ramp' or 'trace'"),
        ({"pattern": "poisson"}, "pattern poisson takes `rate`, given: none"),
        ({"rate": 3}, "pattern closed takes no other key, given: rate"),
        ({"pattern": "gamma", "rate": 3}, "pattern gamma takes `rate` and `burstiness`, given: rate"),
        ({"pattern": "ramp", "rate": 3, "to_rate": 0}, "greater than 0"),
        ({"pattern": "trace", "trace": "t.csv", "rate": 1}, "pattern trace takes `trace`, given: rate, trace"),
        ({"pattern": "constant", "rate": 3, "speed": 2}, "`speed` goes with pattern trace"),
    ],
)
def test_arrivals_that_make_no_sense_are_refused_with_their_line(
    tmp_path: Path, arrivals: dict[str, Any], complaint: str
) -> None:
    path = write_sweep(tmp_path, fake_sweep(workload={"arrivals": arrivals}))
    with pytest.raises(InputError) as caught:
        load_spec(path)
    assert complaint in str(caught.value)
    assert re.match(rf"{path}:\d+: workload\.arrivals", str(caught.value))
    assert "\n" not in str(caught.value)


def test_an_open_loop_takes_one_level() -> None:
    workload = {"arrivals": {"pattern": "constant", "rate": 1}, "concurrency": [1, 2]}
    assert "arrivals of pattern constant take one level" in refused(fake_sweep(workload=workload))


def test_resolved_sweep_reads_back_the_same(tmp_path: Path) -> None:
    spec = load_spec(write_sweep(tmp_path, fake_sweep()))
    assert SweepSpec.model_validate(dump_spec(spec)) == spec


def test_override_reaches_the_spec(tmp_path: Path) -> None:
    spec = load_spec(write_sweep(tmp_path, fake_sweep()), ["workload.max_tokens=5", "arms.2.grid.budget=[3]"])
    assert spec.workload.max_tokens == 5
    assert spec.expanded_arms()[-1].budget == 3


def test_complaint_names_file_and_line(tmp_path: Path) -> None:
    path = write_sweep(tmp_path, fake_sweep(blocks={"count": 1}))
    with pytest.raises(InputError) as caught:
        load_spec(path)
    line = next(i for i, text in enumerate(path.read_text().splitlines(), 1) if text.strip() == "count: 1")
    assert f"sweep.yaml:{line}: blocks.count:" in str(caught.value)


def test_shipped_sweeps_are_valid() -> None:
    for path in sorted(Path("experiments").glob("*.yaml")):
        spec = load_spec(path)
        assert any(arm.method is Method.AUTOREGRESSIVE for arm in spec.expanded_arms())


@pytest.mark.parametrize(
    ("blocks", "complaint"),
    [
        ({"count": "x"}, "blocks.count: Input should be a valid integer"),
        ({"count": 1}, "blocks.count: Input should be greater than or equal to 2"),
        ({"count": 65}, "blocks.count: Input should be less than or equal to 64"),
        ({"count": 8, "max": 4}, "blocks: `max` must be between `count`, 8, and 64, not 4"),
        ({"max": 65}, "blocks: `max` must be between `count`, 4, and 64, not 65"),
        ({"step": 0}, "blocks.step: Input should be greater than or equal to 1"),
    ],
)
def test_bad_blocks_are_one_line(tmp_path: Path, blocks: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError) as caught:
        load_spec(write_sweep(tmp_path, fake_sweep(blocks=blocks)))
    assert complaint in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
