"""The load client inside a trial: its own process, its record, and its death."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import AsyncIterator

import psutil
import pytest

from orchestrator.records import TrialState
from orchestrator.slots import Slot
from tests.orchestrator.acting import ANY_LOAD, MATCH, trial

POISSON = {"prompts": {"count": 8}, "max_tokens": 12, "arrivals": {"pattern": "poisson", "rate": 20.0}}


@pytest.fixture
async def slot() -> AsyncIterator[Slot]:
    opened = Slot("slot-0", MATCH, ANY_LOAD)
    yield opened
    await opened.close()


def clients() -> list[psutil.Process]:
    """Load clients that this process started and that still run."""
    below = psutil.Process().children()
    return [process for process in below if "orchestrator.load.child" in " ".join(process.cmdline())]


def kill_a_client() -> None:
    """Once the trial's load is under way."""
    deadline = time.monotonic() + 60
    while not clients() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(1.0)
    os.kill(clients()[0].pid, signal.SIGKILL)


async def test_a_client_killed_in_a_trial_makes_it_invalid_and_the_slot_goes_on(slot: Slot) -> None:
    killer = threading.Thread(target=kill_a_client)
    killer.start()
    measured = await slot.run(trial({"step_ms": 200.0, "tokens_per_step": 1.0}))
    killer.join()
    assert measured.record.state is TrialState.INVALID
    assert "the load client ended by signal 9" in measured.record.reason
    assert "\n" not in measured.record.reason
    assert clients() == []
    assert (await slot.run(trial())).record.state is TrialState.VALID
    assert clients() == []


async def test_the_record_says_how_the_load_was_offered_and_read(slot: Slot) -> None:
    load = (await slot.run(trial())).record.load
    assert load is not None
    assert load.pattern == "closed"
    assert load.cores
    assert set(load.cores) <= os.sched_getaffinity(0)
    assert load.own_core == (len(load.cores) < len(os.sched_getaffinity(0)))
    assert load.startup_s > 0
    assert load.lag_ms_p99 is not None
    assert load.lag_ms_p99 >= 0
    assert 0 <= load.coalesced_share < 1


async def test_an_open_loop_is_a_trial_like_any_other(slot: Slot) -> None:
    subject = trial(workload=POISSON)
    measured = await slot.run(subject)
    assert (measured.record.state, measured.record.reason) == (TrialState.VALID, "")
    scheduled = list(measured.requests["scheduled"])
    due = [arrival.at for arrival in subject.arrivals]
    assert [at - scheduled[0] for at in scheduled] == pytest.approx(due, abs=1e-5)
    load = measured.record.load
    assert load is not None
    assert load.pattern == "poisson"
    assert measured.record.window[0] < measured.record.window[1] <= measured.record.duration


async def test_an_over_saturated_trial_is_stopped_and_invalid(slot: Slot) -> None:
    workload = {
        "prompts": {"count": 80},
        "max_tokens": 12,
        "arrivals": {"pattern": "constant", "rate": 500.0},
        "request_timeout_s": 60.0,
    }
    measured = await slot.run(trial({"step_ms": 400.0, "tokens_per_step": 1.0}, workload=workload, warmup=SHORT))
    assert measured.record.state is TrialState.INVALID
    assert measured.record.reason.startswith("over-saturated: ")
    assert len(measured.requests) == 40


SHORT = {"min_requests": 2, "max_requests": 2, "max_tokens": 2}
