import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import pytest

from orchestrator.promotion.host import Unit
from tests.orchestrator.processes import VARIABLE, marked, new_mark


@pytest.fixture
def mark() -> Iterator[str]:
    """What every server of a test carries in its environment; none outlives the test."""
    value = new_mark()
    yield value
    while found := marked(value):
        for pid in found:
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def make_unit(tmp_path: Path, mark: str) -> Iterator[Callable[..., Unit]]:
    """A unit that runs a shell script; keyword arguments replace the other fields. No keeper outlives the test."""

    def make(script: str, **fields: object) -> Unit:
        values: dict[str, object] = {
            "name": "orchestrate-r1-0",
            "argv": ("sh", "-c", script),
            "env": {VARIABLE: mark},
            "cwd": PurePosixPath("/"),
            "folder": PurePosixPath(tmp_path / "unit"),
            "release": PurePosixPath(tmp_path / "release"),
            "models": (),
            "port": 8000,
        }
        return Unit(**(values | fields))  # type: ignore[arg-type]

    yield make
    keeper = tmp_path / "unit/keeper.pyz"
    if keeper.exists():
        command = [sys.executable, "-IS", str(keeper), "stop", str(keeper.parent), "0"]
        subprocess.run(command, check=True, timeout=60)


@pytest.fixture
def python() -> str:
    return sys.executable
