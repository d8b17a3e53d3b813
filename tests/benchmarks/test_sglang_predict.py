"""Predictions from made-up step times."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks.sglang import predict

COST = {
    "shape": "made up",
    "points": {
        "batch 1 context 1000": {"ar": {"median": 5.0}, "dflash": {"median": 10.0}},
        "batch 16 context 1000": {"ar": {"median": 8.0}, "dflash": {"median": 16.0}},
        "batch 4 context 1000": {"dflash@fa3": {"median": 8.0}, "ddtree-63@fa3": {"median": 10.0}},
    },
    "ladder": [
        {"requests": 1, "width": 64, "context": 0, "ms": 6.0},
        {"requests": 1, "width": 64, "context": 2000, "ms": 10.0},
        {"requests": 16, "width": 64, "context": 0, "ms": 30.0},
        {"requests": 16, "width": 48, "context": 0, "ms": 1.0},
    ],
}
TOKENS = {"dflash": 4.0, "64": 6.0}


def test_tokens_a_second_are_tokens_over_steps() -> None:
    rows = predict.table(COST, TOKENS)
    assert rows[0] == {
        "batch": 1,
        "context": 1000,
        "tok_s": {"ar": 200.0, "dflash": 400.0, "64": 750.0},
        "fastest": "64",
    }
    assert rows[1]["tok_s"] == {"ar": 2000.0, "dflash": 4000.0, "64": 3200.0}, "48 has no measured acceptance"
    assert rows[2]["tok_s"] == {"dflash@fa3": 2000.0, "64": 2400.0}, "the measured tree, whoever prefills"
    assert predict.crossover(rows, 1000) == 16
    assert predict.crossover(rows[:1], 1000) is None


def test_every_output_says_that_it_is_a_prediction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cost.json").write_text(json.dumps(COST))
    monkeypatch.setattr(sys, "argv", ["predict", str(tmp_path / "cost.json"), str(tmp_path / "out.json")])
    predict.main()
    told = json.loads((tmp_path / "out.json").read_text())
    assert told["predicted"] is True
    assert "No token was decoded" in told["what"]
    assert all(line.startswith("PREDICTED ") for line in capsys.readouterr().out.splitlines())
