import json
import socket
import subprocess
import sys

from orchestrator.environment import describe, inputs, packages_digest
from tests.orchestrator.acting import deployment, sweep_plan


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


def test_what_is_installed_has_one_digest() -> None:
    assert describe()["packages_digest"] == packages_digest()
    assert len(packages_digest()) == 64


def test_inputs_say_what_a_run_measures_and_no_secret() -> None:
    plan = sweep_plan(deployed=deployment(environment={"HF_TOKEN": "hf_secret"}, arguments=("--flag",)))
    described = inputs(plan)
    assert "hf_secret" not in json.dumps(described)
    engine = described["engines"]["fake"]
    assert (engine["environment"], engine["arguments"]) == (["HF_TOKEN"], ("--flag",))
    assert (engine["target_digest"], engine["drafter_digest"]) == ("t", "d")
    assert not {"interpreter", "target", "drafter"} & set(engine)
    assert described["prompts"] == {
        "set": "orchestrate",
        "version": plan.prompt_set.version,
        "digest": plan.prompt_set.digest,
        "count": 8,
        "seed": 3,
    }
    assert described["seeds"] == {"blocks": 5, "selection": 0, "sampling": 0}
    assert described["workload"]["max_tokens"] == 12
