"""One local Ray cluster for all tests of this folder that run a sweep inside the test's process."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.cluster import Cluster, connect
from orchestrator.plan import Plan
from orchestrator.spec import dump_spec
from orchestrator.store import RunStore
from tests.orchestrator.processes import marked, new_mark


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    with connect(None) as connected:
        yield connected


@pytest.fixture
def mark() -> Iterator[str]:
    """A mark for the engines of one test; none may be left when it ends."""
    value = new_mark()
    yield value
    left = marked(value)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == {}, "processes were left behind"


def new_store(folder: Path, plan: Plan) -> RunStore:
    store = RunStore(folder / "run")
    store.create(dump_spec(plan.spec), {})
    return store
