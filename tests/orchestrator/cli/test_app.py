import json
import subprocess
import sys
from typing import Any

import pytest

from orchestrator import doctor
from orchestrator.doctor import Finding, State

HEAVY = ("torch", "ray", "pandas", "scipy", "plotly", "transformers")


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_help_loads_nothing_heavy() -> None:
    code = f"import sys, orchestrator.cli; print([name for name in {HEAVY} if name in sys.modules])"
    assert python(code).stdout == "[]\n"


def test_the_control_plane_never_loads_torch() -> None:
    modules = "orchestrator.sweep, orchestrator.doctor, orchestrator.deployments, orchestrator.verdict"
    assert python(f"import sys, {modules}; print('torch' in sys.modules)").stdout == "False\n"


def test_bad_input_ends_with_2_and_one_line() -> None:
    code = "import sys; sys.argv = ['orchestrate', 'plan', 'absent.yaml']; from orchestrator.cli import main; main()"
    result = python(code)
    assert result.returncode == 2
    assert result.stderr.startswith("error: absent.yaml: cannot be read")
    assert len(result.stderr.splitlines()) == 1


def test_version(invoke: Any) -> None:
    assert invoke("--version").output.startswith("orchestrate ")


def test_engines_list(invoke: Any) -> None:
    rows = json.loads(invoke("engines", "list", "--json").output)
    assert {row["engine"] for row in rows} >= {"fake", "reference"}


def test_models_list(invoke: Any) -> None:
    rows = json.loads(invoke("models", "list", "--json").output)
    assert {row["name"]: row["state"] for row in rows}["smollm2-135m-dflash-b8"] == "present"


@pytest.mark.parametrize(("state", "code"), [(State.GOOD, 0), (State.WARNING, 0), (State.MISSING, 1)])
def test_doctor_fails_only_for_what_is_missing(
    invoke: Any, monkeypatch: pytest.MonkeyPatch, state: State, code: int
) -> None:
    monkeypatch.setattr(doctor, "examine", lambda _: [Finding("disk", state, "found", "remedy")])
    result = invoke("doctor", "--json")
    assert result.exit_code == code
    assert json.loads(result.output) == [{"check": "disk", "state": state, "found": "found", "remedy": "remedy"}]


def test_doctor_examines_this_machine(invoke: Any) -> None:
    checks = [finding["check"] for finding in json.loads(invoke("doctor", "--json").output)]
    assert checks[:5] == ["python", "ray", "memory", "disk for runs", "CPU bfloat16"]
