import os
from pathlib import Path, PurePosixPath

import pytest

from orchestrator.promotion.host import Gpu, HostError
from orchestrator.promotion.hosts import facts
from orchestrator.promotion.hosts.local import LocalHost

TWO = """\
NVIDIA RTX PRO 6000 Blackwell Server Edition, GPU-11111111-2222-3333-4444-555555555555, 97887, 580.95.05
NVIDIA H200, GPU-66666666-7777-8888-9999-000000000000, 143771, 580.95.05
"""


def test_gpus_are_read_from_nvidia_smi() -> None:
    assert facts.parse_gpus(TWO) == (
        Gpu(
            "NVIDIA RTX PRO 6000 Blackwell Server Edition",
            "GPU-11111111-2222-3333-4444-555555555555",
            97887 << 20,
            "580.95.05",
        ),
        Gpu("NVIDIA H200", "GPU-66666666-7777-8888-9999-000000000000", 143771 << 20, "580.95.05"),
    )
    assert facts.parse_gpus("") == ()


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An nvidia-smi that the test writes, first on the PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path / "nvidia-smi"


def test_a_host_with_gpus_tells_them(smi: Path) -> None:
    smi.write_text(f"#!/bin/sh\ncat <<'END'\n{TWO}END\n")
    smi.chmod(0o755)
    found = LocalHost().facts(PurePosixPath("/"))
    assert [gpu.name for gpu in found.gpus] == ["NVIDIA RTX PRO 6000 Blackwell Server Edition", "NVIDIA H200"]
    assert "nvidia-smi" not in found.tools


@pytest.mark.parametrize("script", ["echo NVIDIA-SMI has failed; exit 9", "echo NVIDIA-SMI has no idea"])
def test_a_broken_driver_is_an_error_and_not_a_host_without_gpus(smi: Path, script: str) -> None:
    smi.write_text(f"#!/bin/sh\n{script}\n")
    smi.chmod(0o755)
    with pytest.raises(HostError, match="NVIDIA-SMI has"):
        LocalHost().facts(PurePosixPath("/"))
