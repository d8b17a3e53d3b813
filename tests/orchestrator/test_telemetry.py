import os
import subprocess
import sys
import time

import psutil
import pytest

from orchestrator.telemetry import Sampler

BUSY = "while True: pass"


def sampled(root: int, seconds: float) -> Sampler:
    with Sampler(root, time.perf_counter()) as sampler:
        time.sleep(seconds)
    return sampler


def test_samples_come_at_least_twice_a_second_with_what_the_machine_did() -> None:
    frame = sampled(os.getpid(), 1.3).frame()
    assert len(frame) >= 3
    assert frame["time"].is_monotonic_increasing
    assert frame["time"].diff().median() < 0.5
    assert (frame["rss_bytes"] > 1e6).all()
    assert (frame["available_bytes"] > 0).all()
    assert frame["cpu_percent"].between(0, 100).all()


def test_a_trial_too_short_to_judge_still_leaves_a_sample() -> None:
    sampler = sampled(os.getpid(), 0.05)
    assert len(sampler.frame()) == 1
    assert sampler.load() is None


def test_the_engines_own_work_is_not_other_load() -> None:
    zero = time.perf_counter()
    with subprocess.Popen([sys.executable, "-c", BUSY]) as busy, subprocess.Popen(["sleep", "300"]) as idle:
        with Sampler(busy.pid, zero) as as_engine, Sampler(idle.pid, zero) as as_other:
            time.sleep(1.6)
        used = sum(psutil.Process(busy.pid).cpu_times()[:2]) / 1.6
        for process in (busy, idle):
            process.kill()
    ours, others = as_engine.load(), as_other.load()
    assert ours is not None
    assert others is not None
    assert others.other - ours.other == pytest.approx(used, abs=0.3)
    assert used > 0.3
