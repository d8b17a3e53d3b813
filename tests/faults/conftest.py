"""One local Ray cluster for all tests of this folder that run a sweep inside the test's process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.cluster import Cluster, connect
from orchestrator.plan import Plan
from orchestrator.spec import dump_spec
from orchestrator.store import RunStore


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    with connect(None) as connected:
        yield connected


def new_store(folder: Path, plan: Plan) -> RunStore:
    store = RunStore(folder / "run")
    store.create(dump_spec(plan.spec), {})
    return store
