"""SIGKILL for every process of a running sweep in turn: the trials come out the same, and nothing is left running."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from orchestrator.cluster import Cluster
from orchestrator.driver import run_sweep
from orchestrator.records import TrialState
from orchestrator.store import RunStore
from tests.faults.conftest import new_store
from tests.faults.sweeping import INTERRUPTED, slow_plan
from tests.orchestrator.acting import ANY_LOAD, CHOICE
from tests.orchestrator.processes import VARIABLE, eventually, marked, parent


def engine(mark: str) -> int | None:
    """Process id of the fake engine's server, once it runs."""
    servers = [pid for pid, line in marked(mark).items() if "engines.fake.server" in line and "leash" not in line]
    return servers[0] if servers else None


def asked(server: int | None) -> bool:
    """Whether somebody is connected to it."""
    if server is None:
        return False
    try:
        return any(each.status == psutil.CONN_ESTABLISHED for each in psutil.Process(server).net_connections("tcp"))
    except psutil.NoSuchProcess:
        return False


def kill_in_a_trial(store: RunStore, mark: str, generations: int) -> None:
    """Wait for the second trial to be under way, then kill the engine's ancestor so many generations up."""
    assert eventually(lambda: sum(entry.state is TrialState.STARTED for entry in store.entries()) >= 2, 60)
    assert eventually(lambda: asked(engine(mark))), "a kill between two trials costs none of them an attempt"
    victim = engine(mark)
    for _ in range(generations):
        assert victim is not None
        victim = parent(victim)
    assert victim is not None
    os.kill(victim, signal.SIGKILL)


@pytest.mark.parametrize(
    ("victim", "generations"), [("engine", 0), ("inner leash", 1), ("outer leash", 2), ("slot actor", 3)]
)
def test_a_kill_below_the_driver_costs_one_attempt(
    cluster: Cluster, tmp_path: Path, mark: str, victim: str, generations: int
) -> None:
    plan = slow_plan(mark)
    store, output = new_store(tmp_path, plan), io.StringIO()
    killer = threading.Thread(target=kill_in_a_trial, args=(store, mark, generations))
    killer.start()
    run_sweep(plan, store, CHOICE, Console(file=output, width=200), ANY_LOAD)
    killer.join()
    assert store.finished() == {trial.digest for trial in plan.trials}, output.getvalue()
    spoilt = [entry for entry in store.entries() if entry.state in (TrialState.FAILED, TrialState.INVALID)]
    assert len(spoilt) == 1, f"killing the {victim} cost {spoilt}"
    assert spoilt[0].reason
    assert output.getvalue().count("once more") == 1
    assert eventually(lambda: marked(mark) == {}), marked(mark)


def start_sweep(folder: Path, mark: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.faults.sweeping", str(folder), mark],
        env=os.environ | {VARIABLE: mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.slow
def test_a_killed_driver_leaves_nothing_and_the_sweep_is_resumed(cluster: Cluster, tmp_path: Path, mark: str) -> None:
    store = RunStore(tmp_path / "run")
    driver = start_sweep(store.folder, mark)
    assert eventually(lambda: len(store.finished()) >= 1 and engine(mark) is not None, 60)
    driver.kill()
    driver.communicate()
    assert eventually(lambda: marked(mark) == {}, 30), marked(mark)
    stored = store.finished()
    plan = slow_plan(mark)
    assert set() < stored < {trial.digest for trial in plan.trials}
    before = {digest: (store.trials.folder / digest / "trial.json").stat().st_mtime_ns for digest in stored}
    output = io.StringIO()
    run_sweep(plan, store, CHOICE, Console(file=output, width=200), ANY_LOAD)
    assert store.finished() == {trial.digest for trial in plan.trials}
    assert f"{len(stored)} of 4 trials are stored; going on with the rest" in output.getvalue()
    assert before == {d: (store.trials.folder / d / "trial.json").stat().st_mtime_ns for d in stored}


@pytest.mark.slow
@pytest.mark.parametrize("told", ["by a terminal", "by SIGTERM"])
def test_an_interrupt_stops_everything_and_says_how_to_go_on(tmp_path: Path, mark: str, told: str) -> None:
    store = RunStore(tmp_path / "run")
    driver = start_sweep(store.folder, mark)
    assert eventually(lambda: len(store.finished()) >= 1 and engine(mark) is not None, 60)
    if told == "by SIGTERM":
        driver.terminate()
    else:
        os.killpg(driver.pid, signal.SIGINT)
    output, _ = driver.communicate(timeout=60)
    assert driver.returncode == INTERRUPTED, output
    assert f"stopped; {len(store.finished())} of 4 trials are stored: --resume goes on with the rest" in output
    assert "Traceback" not in output
    assert "SIGTERM received" not in output, "Ray's own handler"
    assert eventually(lambda: marked(mark) == {}), marked(mark)
