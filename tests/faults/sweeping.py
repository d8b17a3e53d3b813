"""A sweep in a process of its own, to be killed: `python -m tests.faults.sweeping RUN MARK`."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

from orchestrator.cluster import connect
from orchestrator.driver import run_sweep
from orchestrator.plan import Plan
from orchestrator.spec import dump_spec
from orchestrator.store import RunStore
from tests.orchestrator.acting import ANY_LOAD, CHOICE, deployment, plain, sweep_plan
from tests.orchestrator.processes import VARIABLE

INTERRUPTED = 130


def slow_plan(mark: str) -> Plan:
    """Four trials of some seconds, so that a kill aimed at one does not come after its end on a busy machine."""
    arms = [plain(step_ms=40.0), {"method": "dflash", "name": "subject", "options": {"step_ms": 120.0}}]
    return sweep_plan(arms, deployment(environment={VARIABLE: mark}))


def main(folder: str, mark: str) -> int:
    plan, store = slow_plan(mark), RunStore(Path(folder))
    with connect(None), store.lock():
        store.create(dump_spec(plan.spec), {})
        try:
            run_sweep(plan, store, CHOICE, Console(width=200), ANY_LOAD)
        except KeyboardInterrupt:
            return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
