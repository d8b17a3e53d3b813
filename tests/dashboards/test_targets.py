from pathlib import Path

import pytest

from dashboards.app.releases_page import releases_page
from dashboards.targets import Target, read_targets
from orchestrator.errors import InputError
from tests.dashboards.releases import NEW, OLD, write_targets


@pytest.fixture(scope="module")
def deploy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_targets(tmp_path_factory.mktemp("targets"))


@pytest.fixture(scope="module")
def targets(deploy: Path) -> dict[str, Target]:
    return {target.name: target for target in read_targets(deploy, "")}


def parts(target: Target) -> list[tuple[str, str, float]]:
    return [(part.name, part.placed.release, part.share) for part in target.parts]


def test_what_serves_and_what_is_kept_warm(targets: dict[str, Target]) -> None:
    serving = targets["serving"]
    assert parts(serving) == [("serving", NEW, 100.0), ("warm", OLD, 0.0)]
    first = serving.parts[0].release
    assert first is not None
    assert first.record.arm.name == "ddtree-budget=15"


def test_a_canary_has_its_share_and_is_going_on(targets: dict[str, Target]) -> None:
    canary = targets["canary"]
    assert parts(canary) == [("serving", OLD, 75.0), ("coming", NEW, 25.0)]
    assert canary.history[0].outcome.startswith("going on")


def test_history_tells_each_change_once_the_newest_first(targets: dict[str, Target]) -> None:
    told = [(step.kind, step.release, step.outcome, step.reason[:18]) for step in targets["serving"].history]
    assert told == [
        ("promote", NEW, "done", ""),
        ("promote", NEW, "undone", "smoke: two answers"),
        ("promote", OLD, "done", ""),
    ]


def test_nobody_logs_in_anywhere_unasked(deploy: Path, targets: dict[str, Target]) -> None:
    assert not targets["far"].asked
    asked = {target.name: target for target in read_targets(deploy, "far")}["far"]
    assert asked.asked
    assert "one" in asked.problem
    assert targets["empty"].parts == ()


def test_a_damaged_journal_is_named_and_the_others_are_shown(tmp_path: Path) -> None:
    deploy = write_targets(tmp_path)
    (tmp_path / "serving" / "journal.jsonl").write_text('{"time": 3}\n')
    found = {target.name: target for target in read_targets(deploy, "")}
    assert "journal is damaged" in found["serving"].problem
    assert parts(found["canary"]) != []


def test_a_deploy_file_that_cannot_be_read_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "deploy.yaml").write_text("targets: 3")
    with pytest.raises(InputError, match=r"deploy\.yaml:1"):
        read_targets(tmp_path / "deploy.yaml", "")


def test_the_page_gives_the_way_back(deploy: Path, tmp_path: Path) -> None:
    page = str(releases_page(deploy, tmp_path / "none", {}, {"winner-synthetic"}))
    assert f"orchestrate rollback serving --deploy {deploy}" in page
    assert f"Goes back to {OLD}" in page
    assert f"orchestrate rollback canary --deploy {deploy}" in page
    assert "Undoes the change that is going on" in page
    assert "rollback empty" not in page
    assert "/runs/winner-synthetic" in page
    assert "not asked yet" in page


def test_without_a_file_the_page_says_what_is_missing(tmp_path: Path) -> None:
    page = str(releases_page(tmp_path / "deploy.yaml", tmp_path, {}, set()))
    assert "no such file" in page
