import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.promotion.freeze import freeze
from orchestrator.promotion.release import Release
from orchestrator.store import RunStore
from tests.orchestrator.promotion import crontab, making


@pytest.fixture(scope="session", autouse=True)
def cron(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """No test touches the crontab of who runs it."""
    with crontab.installed(tmp_path_factory.mktemp("cron")) as folder:
        yield folder


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunStore]:
    """Two runs, of a chain and of a faster tree, on the same models."""
    folder = tmp_path_factory.mktemp("measured")
    found = making.model_folders(folder)
    arms: dict[str, dict[str, Any]] = {"first": making.FAST, "second": making.FASTER}
    return {name: asyncio.run(making.measured_run(folder / name, arm, found)) for name, arm in arms.items()}


@pytest.fixture(scope="session")
def made(measured: dict[str, RunStore], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Release]:
    """The releases of both runs."""
    folder: Path = tmp_path_factory.mktemp("releases")
    return {name: freeze(store, folder) for name, store in measured.items()}
