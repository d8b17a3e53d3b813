from pathlib import Path

import pytest

from dashboards.run import Run, load_run
from orchestrator.records import Decision
from orchestrator.store import RunStore
from tests.dashboards.synthetic import INVALID, LOAD, TIE, WINNER, synthetic_run


@pytest.fixture(scope="session")
def winner_store(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    return synthetic_run(tmp_path_factory.mktemp("runs") / "winner-synthetic", WINNER)


@pytest.fixture(scope="session")
def winner_run(winner_store: RunStore) -> Run:
    return load_run(winner_store)


@pytest.fixture(scope="session")
def winner_decision(winner_run: Run) -> Decision:
    assert winner_run.decision is not None
    return winner_run.decision


@pytest.fixture(scope="session")
def load_run_of_many(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return load_run(synthetic_run(tmp_path_factory.mktemp("runs") / "load-synthetic", LOAD))


@pytest.fixture(scope="session")
def tie_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return load_run(synthetic_run(tmp_path_factory.mktemp("runs") / "tie-synthetic", TIE))


@pytest.fixture(scope="session")
def invalid_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return load_run(synthetic_run(tmp_path_factory.mktemp("runs") / "invalid-synthetic", INVALID))


@pytest.fixture
def fresh_store(tmp_path: Path) -> RunStore:
    """A decided run that a test may damage."""
    return synthetic_run(tmp_path / "damaged-synthetic", WINNER)
