"""A run's decision becomes a file for benchmarks/results, without the host's name."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import publish
from orchestrator.store import RunStore
from tests.dashboards.synthetic import WINNER, synthetic_run


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["publish", *arguments, "--command", "orchestrate sweep x.yaml"])
    return publish.main()


def test_the_decision_is_written_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = synthetic_run(tmp_path / "run", WINNER)
    decision = store.decision()
    assert decision is not None
    environment = store.environment()
    (store.folder / "environment.json").write_text(json.dumps(environment | {"host": "a-name-that-stays-here"}))
    assert run(monkeypatch, str(store.folder), str(tmp_path / "out.json")) == 0
    written = json.loads((tmp_path / "out.json").read_text())
    assert written["command"] == "orchestrate sweep x.yaml"
    assert written["decision"] == decision.model_dump(mode="json")
    assert written["environment"] == environment
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("|") for line in lines) == 2 + len(
        [row for row in decision.summaries if row.concurrency == decision.concurrency]
    )
    assert any(line.startswith(f"| **{decision.arm}** |") for line in lines)
    assert lines[-1] == decision.sentence


def test_a_run_without_a_decision_is_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunStore(tmp_path / "none").folder
    with pytest.raises(SystemExit) as caught:
        run(monkeypatch, str(folder), str(tmp_path / "out.json"))
    assert caught.value.code == 2
    assert "no decision; the sweep is not finished" in capsys.readouterr().err
    assert not (tmp_path / "out.json").exists()
