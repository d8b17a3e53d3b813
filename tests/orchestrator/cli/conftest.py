from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from typer.testing import CliRunner, Result

from orchestrator import driver
from orchestrator.cli.app import app
from tests.orchestrator.acting import ANY_LOAD
from tests.orchestrator.sweeps import fake_sweep, write_sweep


@pytest.fixture
def invoke() -> Any:
    """Run a command in this process. Exceptions come out as they would reach `main`."""

    def run(*arguments: str | Path) -> Result:
        return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)

    return run


@pytest.fixture
def any_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure on however busy a machine."""
    monkeypatch.setattr(driver, "Limits", lambda: ANY_LOAD)


@pytest.fixture
def models(tmp_path: Path) -> dict[str, str]:
    """Two folders that look like models; the fake engine never opens them."""
    paths = {}
    for name in ("target", "drafter"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        save_file({"weight": np.zeros(1, dtype=np.float32)}, folder / "model.safetensors")
        paths[name] = str(folder)
    return paths


@pytest.fixture
def sweep_file(tmp_path: Path, models: dict[str, str]) -> Any:
    """A file of the fake sweep with these arms."""

    def write(*arms: dict[str, Any]) -> Path:
        profile = fake_sweep()["profiles"]["local"] | {"models": models}
        prompts = {"set": "orchestrate", "count": 16, "seed": 3}
        workload = {"prompts": prompts, "max_tokens": 12}
        sweep = fake_sweep(arms=list(arms), workload=workload, profiles={"local": profile})
        return write_sweep(tmp_path, sweep | {"blocks": {"count": 4, "seed": 5}})

    return write
