import json
import socket
import subprocess
import sys

from orchestrator.environment import describe


def test_the_machine_is_described_and_its_name_is_not_told() -> None:
    described = describe()
    text = json.dumps(described)
    assert socket.gethostname() not in json.dumps(described["host"])
    assert {"cpu", "threads", "memory_bytes", "kernel", "python", "packages", "gpus", "commit"} <= set(described)
    assert described["packages"]["ray"] in text  # type: ignore[index]
    assert describe()["host"] == described["host"]


def test_describing_imports_no_torch_and_no_ray() -> None:
    code = "import sys, orchestrator.environment as e; e.describe(); print({'torch', 'ray'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout == "set()\n"
