from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orchestrator.slots import Slot
from tests.engines.scripted import BLOCK, Bench, Scripted, model_folder
from tests.orchestrator.acting import ANY_LOAD, MATCH


@pytest.fixture
async def bench(scripted: Scripted, mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    """Of the engine that the tests' own fixture `scripted` names."""
    monkeypatch.setenv("ORCHESTRATE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    scripted.distribution(tmp_path / "site")
    model_folder(tmp_path / "target")
    model_folder(tmp_path / "drafter", block_size=BLOCK)
    slot = Slot("slot-0", MATCH, ANY_LOAD)
    await slot.open()
    yield Bench(scripted, slot, tmp_path, mark)
    await slot.close()
