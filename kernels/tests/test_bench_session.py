"""The session of the benchmark: what ends badly is named, and takes nothing else with it."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from ddtree.bench import session
from ddtree.bench.table import Check, Gap, Limits, guarded, reason_of, write


@pytest.mark.skipif(torch.cuda.is_available(), reason="without a GPU every stage ends at once")
def test_every_stage_is_accounted_for(tmp_path, monkeypatch):
    one = (session.Stage("small", ("--small",), 60),)
    monkeypatch.setattr(session, "stages", lambda folder: iter([one]))
    monkeypatch.setattr(session, "LEAST", 0.0)
    assert session.run(tmp_path / "out", 100.0) == 1
    report = json.loads((tmp_path / "out" / "session.json").read_text())
    assert [(stage["name"], stage["status"]) for stage in report["stages"]] == [("small", "ended with 2")]
    assert "needs a CUDA device" in (tmp_path / "out" / "session.log").read_text()


def test_no_stage_begins_without_time(tmp_path):
    assert session.run(tmp_path, 1.0) == 1
    report = json.loads((tmp_path / "session.json").read_text())
    assert {stage["status"] for stage in report["stages"]} == {"no time left"}
    assert [stage["name"] for stage in report["stages"]][:3] == ["checks", "warm", "steps"]


def test_a_stage_that_hangs_is_killed_with_its_children(tmp_path):
    mark = tmp_path / "child"
    code = f"import subprocess, time; p = subprocess.Popen(['sleep', '60']); open({str(mark)!r}, 'w').write(str(p.pid))"
    process = subprocess.Popen([sys.executable, "-c", f"{code}; time.sleep(60)"], start_new_session=True)
    while not (mark.exists() and mark.read_text()):
        time.sleep(0.01)
    assert session._wait(process, 0.0) == "out of time"
    assert process.returncode == -9
    assert _gone(int(mark.read_text()))


def _gone(pid: int) -> bool:
    """Killed: no process, or one that only waits to be collected."""
    for _ in range(500):
        try:
            if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


def test_later_stages_take_what_earlier_ones_measured(tmp_path):
    write(tmp_path / "steps.json", {"device": "x"})
    assert session._given("--limits", tmp_path / "steps.json", "launch_us") == ()
    assert session._given("--limits", tmp_path / "none.json", "launch_us") == ()
    write(tmp_path / "steps.json", {"launch_us": 1.0})
    assert session._given("--limits", tmp_path / "steps.json", "launch_us") == ("--limits", f"{tmp_path}/steps.json")
    assert [path.name for path in tmp_path.iterdir()] == ["steps.json"]


def test_a_part_that_breaks_leaves_a_gap():
    def items():
        yield Check("a", 0.0, 1.0)
        raise RuntimeError("no\nkernel")

    first, gap = guarded("part", items())
    assert first == Check("a", 0.0, 1.0)
    assert gap == Gap("part", "RuntimeError: no kernel")
    assert gap.failure == "part: RuntimeError: no kernel"
    assert Gap("baseline", "x", ours=False).failure == ""
    assert reason_of(ValueError("x" * 1000)) == f"ValueError: {'x' * 488}"


def test_limits_survive_their_record():
    limits = Limits(4.0e6, 4.5e6, 7.0e8, 1.3)
    assert Limits.of(limits.record()) == limits
