"""Which SGLang an interpreter holds, asked of real processes."""

from __future__ import annotations

import sys
import venv
from pathlib import Path

import pytest

from engines.base import EngineError
from engines.sglang.software import Software, describe
from tests.engines.sglang.acting import distribution


def test_the_probe_finds_the_plugin_and_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(distribution(tmp_path)))
    line = describe(sys.executable)
    assert line.startswith("sglang 0.5.17, torch 2.11.0, ddtree-kernels 0.1.0 code ")
    assert Software.parse(line) == Software("0.5.17", plugin=True)
    (tmp_path / "ddtree" / "tree.py").write_text("WIDTH = 1\n")
    assert describe(sys.executable) != line, "other code is other software"
    assert Software.parse(f"{line}, image sha256:12ab").plugin


def test_stock_sglang_has_no_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = tmp_path / "bare"  # ours has the plugin, as it has this project's kernels
    venv.create(bare, with_pip=False)
    monkeypatch.setenv("PYTHONPATH", str(distribution(tmp_path, "0.5.23", plugin=False)))
    assert Software.parse(describe(str(bare / "bin" / "python"))) == Software("0.5.23", plugin=False)


def test_too_old_or_absent_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineError, match="cannot run SGLang: it has no sglang; run: orchestrate engines install sgla"):
        describe(sys.executable)
    with pytest.raises(EngineError, match="interpreter /no/python: "):
        describe("/no/python")
    monkeypatch.setenv("PYTHONPATH", str(distribution(tmp_path, "0.5.9", plugin=False)))
    with pytest.raises(EngineError, match=r"SGLang 0\.5\.9 is older than 0\.5\.17, the oldest supported"):
        describe(sys.executable)


def test_what_is_no_description_is_not_read() -> None:
    assert Software.parse("sglang 0.6.0rc1, torch 2.15.0+cu130").version == "0.6.0rc1"
    with pytest.raises(EngineError, match="not a description of SGLang"):
        Software.parse("fake 1 (simulated)")
