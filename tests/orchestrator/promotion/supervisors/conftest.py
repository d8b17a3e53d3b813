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
        unit = Unit(**(values | fields))  # type: ignore[arg-type]
        folders.add(Path(unit.folder))
        return unit

    folders: set[Path] = set()
    yield make
    for keeper in (folder / "keeper.pyz" for folder in folders):
        if keeper.exists():
            command = [sys.executable, "-IS", str(keeper), "stop", str(keeper.parent), "0"]
            subprocess.run(command, check=True, timeout=60)


@pytest.fixture
def python() -> str:
    return sys.executable
