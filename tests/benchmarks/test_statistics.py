"""The synthetic sweeps: what an engine's start does to them, and cases that are run alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import statistics
from benchmarks.statistics import CASES, Case, failures, run

ROOT = Path(__file__).parents[2]
QUIET = Case("luck, no other noise", (1.0, 1.0), request=0.0, start=0.03)
ROWS = {
    "kept up, 4 blocks": "luck, 6 arms, 3 % a start, kept up",
    "`restart`, 4 blocks": "A/A, 6 arms, 3 % a start, restart",
    "kept up, looks and dropping": "luck adaptive, 6 arms, 3 % a start, kept up",
    "`restart`, looks and dropping": "A/A adaptive, 6 arms, 3 % a start, restart",
}
"""Rows of the table in docs/statistics.md, and the cases that they are of."""


def steps(case: Case) -> Any:
    """Log time of a step: blocks x prompts of a block x arms."""
    found = case.sweep(np.random.default_rng(1))
    return np.array([np.log(found.step[found.blocks == block]) for block in range(case.blocks)])


def test_engines_that_are_kept_up_have_one_luck_for_all_blocks_and_fresh_ones_one_for_each() -> None:
    kept, restart = steps(QUIET), steps(replace(QUIET, restart=True))
    assert np.ptp(kept, axis=(0, 1)) == pytest.approx(0)
    assert np.ptp(restart, axis=1) == pytest.approx(0)
    assert len(np.unique(kept.round(9))) == 3
    assert len(np.unique(restart.round(9))) == 3 * QUIET.blocks
    many = steps(replace(QUIET, blocks=400, prompts=400, restart=True))
    assert many.std() == pytest.approx(0.03, rel=0.1)


def test_the_interval_holds_the_luck_of_fresh_engines_alone() -> None:
    case = Case("A/A, luck", (1.0,) * 3, trial=0.005, start=0.03)
    kept, restart = run(case, 60, 1), run(replace(case, restart=True), 60, 1)
    assert kept.coverage < 0.6
    assert kept.winners > 0.2
    assert restart.coverage > 0.9
    assert restart.winners < 0.1
    assert failures(case, kept) == ["false winners above 5 %"]
    assert failures(replace(case, name="luck, shown"), kept) == []


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_a_case_that_is_run_alone_takes_its_place_in_the_file(tmp_path: Path) -> None:
    output = tmp_path / "statistics.json"
    later, earlier, other = "A/A, 4 arms", "A/A, 2 arms", "A/A, 6 arms, quiet"
    for name in (later, earlier, other):
        assert statistics.main(["--sweeps", "2", "--only", name, "--output", str(output)]) in (0, 1)
    before = read(output)
    names = [row["case"]["name"] for row in before["cases"]]
    assert names == [case.name for case in CASES if case.name in names]
    assert [name for name in names if not name.startswith(other)] == [earlier, later]
    before["cases"][0]["outcome"]["winners"] = before["cases"][1]["outcome"]["winners"] = 0.25
    output.write_text(json.dumps(before))
    statistics.main(["--sweeps", "2", "--only", earlier, "--output", str(output)])
    assert [row["outcome"]["winners"] == 0.25 for row in read(output)["cases"]] == [False, True, False]
    assert read(output)["seconds"] >= before["seconds"]


def test_a_case_does_not_join_cases_that_were_run_in_another_way(tmp_path: Path) -> None:
    output = tmp_path / "statistics.json"
    statistics.main(["--sweeps", "2", "--only", "A/A, 2 arms", "--output", str(output)])
    before = output.read_text()
    with pytest.raises(SystemExit, match="run in another way"):
        statistics.main(["--sweeps", "3", "--only", "A/A, 4 arms", "--output", str(output)])
    assert output.read_text() == before


@pytest.mark.parametrize(("row", "name"), ROWS.items())
def test_the_table_of_the_luck_of_a_start_is_the_files(row: str, name: str) -> None:
    cases = read(ROOT / "benchmarks/results/statistics.json")["cases"]
    (found,) = [case["outcome"] for case in cases if case["case"]["name"] == name]
    text = (ROOT / "docs/statistics.md").read_text()
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {row} |")]
    _, _, covered, winners, width, blocks, _ = line.split("|")
    assert covered.strip() == f"{100 * found['coverage']:.1f} %"
    assert winners.strip().startswith(f"{100 * found['winners']:.1f} %")
    assert width.strip() == f"{found['width']:.1f} %"
    assert float(blocks) == round(found["blocks"], 1)
