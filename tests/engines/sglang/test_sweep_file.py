"""experiments/sglang_tree_width.yaml on a machine without SGLang, and on one with it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from engines.base import EngineError
from engines.registry import get_engine
from orchestrator.cli.app import app
from orchestrator.deployments import make_deployments
from orchestrator.models import ResolvedModel
from orchestrator.spec import load_spec
from tests.engines.sglang.acting import distribution
from tests.engines.sglang.server import parse

FILE = Path(__file__).parents[3] / "experiments" / "sglang_tree_width.yaml"
PROFILES = ["pro6000", "h200"]


@pytest.fixture(autouse=True)
def _nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHESTRATE_HOME", str(tmp_path / "home"))


def resolve(reference: str) -> ResolvedModel:
    return ResolvedModel(reference, Path("/models", reference), f"digest of {reference}")


@pytest.mark.parametrize("profile", PROFILES)
def test_a_plan_needs_no_sglang_and_says_what_is_missing(profile: str) -> None:
    result = CliRunner().invoke(app, ["plan", str(FILE), "--profile", profile], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "environment sglang-cuda is not installed here and planned as its pins say (sglang 0." in result.output
    assert "run: orchestrate engines install sglang-cuda" in result.output
    assert "ddtree-auto" in result.output


def test_a_sweep_needs_it() -> None:
    with pytest.raises(EngineError, match="sglang-cuda is not installed; run: orchestrate engines install sglang-cuda"):
        make_deployments(load_spec(FILE), "h200", resolve)


@pytest.mark.parametrize("profile", PROFILES)
def test_every_arm_becomes_a_server(profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(distribution(tmp_path / "site")))
    spec = load_spec(FILE, [f"profiles.{profile}.engines.sglang.interpreter={sys.executable}"])
    deployment = make_deployments(spec, profile, resolve)["sglang"]
    assert deployment.software.startswith("sglang 0.5.17, torch 2.11.0, ddtree-kernels 0.1.0 code ")
    engine = get_engine("sglang")
    commands = set()
    for arm in spec.expanded_arms():
        resolved = arm.resolved("sglang")
        for name, value in engine.env(resolved, deployment).items():
            monkeypatch.setenv(name, value)
        line = engine.command(resolved, deployment, 0)
        options = parse(line[line.index("sglang.launch_server") + 1 :])
        assert options.speculative_algorithm == (resolved.method.upper() if resolved.speculative else None)
        commands.add((*line, *sorted(engine.env(resolved, deployment).items())))
    assert len(commands) == len(spec.expanded_arms()), "no two arms are the same server"
