from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from engines import envs
from engines.base import EngineError
from engines.envs import ENVIRONMENTS
from orchestrator.deployments import make_deployments
from orchestrator.models import resolve
from orchestrator.spec import SweepSpec
from tests.engines.envs.conftest import Shelf, shelf
from tests.orchestrator.sweeps import fake_sweep

__all__ = ["shelf"]


def test_the_list_has_methods_and_software(invoke: Any) -> None:
    rows = {row["engine"]: row for row in json.loads(invoke("engines", "list", "--json").output)}
    assert set(rows) == {"fake", "reference", "sglang", "vllm"}
    assert rows["vllm"]["methods"] == ["autoregressive", "dflash", "eagle3", "ngram"]
    assert rows["vllm"]["software"].startswith("not usable here: ")


def test_check_says_what_is_missing_and_what_helps(invoke: Any, shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engines.envs.suitability._has_nvidia_driver", lambda: False)
    result = invoke("engines", "check", "--json")
    rows = {row["name"]: row for row in json.loads(result.output)}
    assert (result.exit_code, set(rows)) == (0, set(ENVIRONMENTS))
    assert rows["tiny"]["state"] == "missing"
    assert rows["tiny"]["version"] == "1.0 (pinned)"
    assert rows["tiny"]["remedy"] == "orchestrate engines install tiny"
    assert (rows["vllm-cuda"]["obstacle"], rows["vllm-cuda"]["remedy"]) == (
        "it needs an NVIDIA GPU, and no driver is loaded",
        "",
    )


def test_the_remedy_helps(invoke: Any, shelf: Shelf) -> None:
    assert invoke("engines", "check", "tiny").exit_code == 1
    installed = invoke("engines", "install", "tiny")
    assert (installed.exit_code, installed.stdout.strip()) == (0, envs.interpreter("tiny"))
    checked = invoke("engines", "check", "tiny", "--json")
    assert checked.exit_code == 0
    assert json.loads(checked.output)[0] == {
        "name": "tiny",
        "engine": "fake",
        "state": "installed",
        "version": "1.0",
        "obstacle": "",
        "remedy": "",
        "usable": True,
    }


def test_an_unknown_environment_is_one_line(invoke: Any) -> None:
    with pytest.raises(EngineError, match="there is no engine environment 'trt'"):
        invoke("engines", "check", "trt")


def test_a_profile_names_an_environment_for_an_interpreter(shelf: Shelf, models: dict[str, str]) -> None:
    profile = fake_sweep()["profiles"]["local"] | {"models": models}
    profile["engines"] = {"fake": {"dtype": "float32", "interpreter": "tiny"}}
    spec = SweepSpec.model_validate(fake_sweep(profiles={"local": profile}))
    with pytest.raises(EngineError, match="tiny is not installed; run: orchestrate engines install tiny"):
        make_deployments(spec, "local", resolve)
    python = envs.install("tiny")
    assert make_deployments(spec, "local", resolve)["fake"].interpreter == str(python)
    profile["engines"] = {"fake": {"dtype": "float32"}}
    spec = SweepSpec.model_validate(fake_sweep(profiles={"local": profile}))
    assert make_deployments(spec, "local", resolve)["fake"].interpreter == sys.executable
