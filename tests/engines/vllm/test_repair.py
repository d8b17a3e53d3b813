"""The mender, run in a process of its own with a stand-in for the module that it mends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from engines.vllm import repair

STAND_IN = """
class ops:
    def rms_norm(out, keys, weight, eps):
        out[:] = [key * weight for key in keys]

class Keys(list):
    shape = None
    def new_empty(self, shape):
        return [[0, 0], [0, 0]]

class DFlashQwen3Model:
    _k_norm_weights, _rms_norm_eps = [10, 100], 1e-5
    def {method}(self, keys):
        return "first weight for all"
"""
USE = """
from vllm.model_executor.models.qwen3_dflash import DFlashQwen3Model, Keys
print(DFlashQwen3Model()._normalize_context_k(Keys([[1, 2], [3, 4]])))
"""


def use(folder: Path, method: str, *path: Path) -> subprocess.CompletedProcess[str]:
    package = folder / "vllm" / "model_executor" / "models"
    package.mkdir(parents=True)
    (package / "qwen3_dflash.py").write_text(STAND_IN.format(method=method))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [*path, folder]))}
    return subprocess.run([sys.executable, "-c", USE], capture_output=True, text=True, env=environment, check=False)


def test_each_layer_gets_its_own_weight(tmp_path: Path) -> None:
    stock = use(tmp_path / "stock", "_normalize_context_k")
    assert stock.stdout.strip() == "first weight for all"
    mended = use(tmp_path / "mended", "_normalize_context_k", repair.FOLDER)
    assert mended.stdout.strip() == "[[10, 20], [300, 400]]"
    assert "normalises context keys layer by layer" in mended.stderr


def test_a_version_that_changed_is_not_taken_for_mended(tmp_path: Path) -> None:
    changed = use(tmp_path, "_another_name", repair.FOLDER)
    assert changed.returncode != 0
    assert "_normalize_context_k" in changed.stderr
