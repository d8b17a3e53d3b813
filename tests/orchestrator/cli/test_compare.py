import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.orchestrator.test_compare import GAINS, stored


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    line = ["orchestrate", "compare", "before", "after", "--runs", str(folder), *arguments]
    code = f"import sys; sys.argv = {line!r}; from orchestrator.cli import main; main()"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(("gain", "code"), [(1.2, 0), (1.08, 8)])
def test_the_exit_code_tells_ci_whether_an_arm_regressed(tmp_path: Path, gain: float, code: int) -> None:
    stored(tmp_path / "before", GAINS, 0)
    stored(tmp_path / "after", GAINS | {"dflash": gain}, 0)
    shown = run(tmp_path)
    assert shown.returncode == code
    assert shown.stdout.splitlines()[0].startswith("regressed: dflash" if code else "no regression")
    document = json.loads(run(tmp_path, "--json").stdout)
    assert document["change"] == ("regressed" if code else "no regression")


def test_another_machine_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    stored(tmp_path / "before", GAINS, 0)
    stored(tmp_path / "after", GAINS, 0, {"cpu": "Xeon"})
    refused = run(tmp_path)
    assert refused.returncode == 2
    assert refused.stderr == "error: before and after cannot be compared: cpu: EPYC and Xeon\n"
