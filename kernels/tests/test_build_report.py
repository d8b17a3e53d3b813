import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ddtree.build_report import Build


def report(tmp_path: Path, *options: str) -> tuple[int, list[dict]]:
    out = tmp_path / "report.json"
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "ddtree.build_report", "--out", str(out), *options]
    status = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL).returncode
    return status, json.loads(out.read_text())


def test_small_kernels_fit_the_pro_6000(tmp_path):
    status, builds = report(tmp_path, "--arch", "120", "--only", "steps")
    assert status == 0
    assert {build["kernel"] for build in builds} >= {"build", "walk_tree", "move_cache", "move_slots", "gather"}
    assert all(build["arch"] == 120 and build["registers"] > 0 and build["fits"] for build in builds)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["90", "120"])
def test_every_kernel_fits(tmp_path, arch):
    status, builds = report(tmp_path, "--arch", arch)
    assert status == 0
    assert {build["kernel"] for build in builds} >= {
        "scan",
        "select",
        "survey",
        "collect",
        "draw",
        "attend",
        "merge",
        "build",
    }
    # The main loop of the attention keeps its tiles in shared memory: a build without them would be another kernel.
    assert max(build["shared"] for build in builds if build["kernel"] == "attend") > 32 * 1024


def build(**change: int) -> Build:
    fields = {"warps": 4, "registers": 80, "spill_stores": 0, "spill_loads": 0, "stack": 0, "shared": 1024}
    return Build(arch=change.pop("arch", 120), kernel="k", variant="", **{**fields, **change})


def test_limits():
    assert build().fits
    assert not build(spill_stores=4).fits
    assert not build(stack=8).fits
    assert build(shared=99 * 1024).fits
    assert not build(shared=99 * 1024 + 1).fits
    assert build(arch=90, shared=99 * 1024 + 1).fits


def test_the_interpreter_cannot_build():
    command = [sys.executable, "-m", "ddtree.build_report", "--only", "steps"]
    result = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert result.returncode == 2
    assert "unset it" in result.stderr
