import json
import socket
import subprocess
import sys
from pathlib import Path
from venv import EnvBuilder

import pytest

from orchestrator.environment import describe, inputs, packages_digest
from orchestrator.errors import InputError
from orchestrator.identity import differences, other_packages
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


def test_an_engines_packages_are_those_of_its_own_interpreter(tmp_path: Path) -> None:
    own = venv(tmp_path / "own", "left==1.0", "right==2.0")
    engine = inputs(sweep_plan(deployed=deployment(interpreter=own)))["engines"]["fake"]
    assert set(engine["packages"]) == {"left", "right"}
    assert engine["packages"]["left"].startswith("1.0 ")
    assert len(engine["packages_digest"]) == 64


def test_a_comparison_names_the_package_of_the_engine_that_changed(tmp_path: Path) -> None:
    described = [
        {"inputs": inputs(sweep_plan(deployed=deployment(interpreter=venv(tmp_path / name, *names))))}
        for name, names in (("a", ("left==1.0", "right==2.0")), ("b", ("left==1.0", "right==2.1")))
    ]
    assert other_packages(*described) == "fake: right"
    assert other_packages(described[0], described[0]) == ""
    (found,) = differences(*described)
    assert found.what == "inputs.engines.fake.packages.right"
    assert (str(found.before)[:4], str(found.after)[:4], found.refused) == ("2.0 ", "2.1 ", False)


def test_an_image_is_its_digest_and_an_interpreter_that_cannot_say_is_refused(tmp_path: Path) -> None:
    image = deployment(interpreter="python3", image="sha256:1")
    assert inputs(sweep_plan(deployed=image))["engines"]["fake"].keys().isdisjoint({"packages", "packages_digest"})
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no such thing >&2; exit 1\n")
    broken.chmod(0o755)
    with pytest.raises(InputError, match="a listing of its packages: no such thing"):
        inputs(sweep_plan(deployed=deployment(interpreter=str(broken))))


def venv(folder: Path, *requirements: str) -> str:
    """The interpreter of an environment that holds these and nothing else."""
    EnvBuilder(symlinks=True).create(folder)
    (site,) = folder.glob("lib/*/site-packages")
    for requirement in requirements:
        name, _, version = requirement.partition("==")
        place = site / f"{name}-{version}.dist-info"
        place.mkdir()
        (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (place / "RECORD").write_text(f"{name}.py,sha256={version},10\n")
    return str(folder / "bin" / "python")


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
    assert "blocks" not in described
    assert inputs(sweep_plan(blocks={"count": 4, "restart": True}))["blocks"] == {"restart": True}
