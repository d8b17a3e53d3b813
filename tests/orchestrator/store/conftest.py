from pathlib import Path

import pytest

from orchestrator.store import RunStore


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    made = RunStore(tmp_path / "tree-0123")
    made.create({"question": "what?"}, {"cpu": "some"})
    return made
