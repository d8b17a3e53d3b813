from pathlib import Path

import pytest

from engines.base import Method
from orchestrator.errors import InputError
from orchestrator.spec import SweepSpec, dump_spec, load_spec
from tests.orchestrator.spec.refusing import refused
from tests.orchestrator.sweeps import fake_sweep, write_sweep


def test_two_arms_of_one_name_are_refused() -> None:
    assert "two arms are named 'dflash'" in refused(
        fake_sweep(arms=[{"method": "autoregressive"}, {"method": "dflash"}, {"method": "dflash"}])
    )


def test_baseline_must_be_an_arm() -> None:
    assert "is no arm" in refused(fake_sweep(selection={"baseline": "plain"}))


def test_decision_point_must_be_measured() -> None:
    assert "at_concurrency 4" in refused(fake_sweep(selection={"at_concurrency": 4}))


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
