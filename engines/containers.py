"""Engines in container images, run by Docker or Podman: the alternative to an interpreter of this machine.

A container shares the machine's network, so a server listens on the loopback interface as any other does, and has the
models mounted read-only under the paths that they have here, so commands and what a server says of itself need no
translation. Its first process is the leash, with the client's stdin for its pipe: whatever ends the client, SIGKILL
included, ends the container.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path

from engines.base import Deployment, EngineError
from engines.messages import one_line

PYTHON = "python3"
"""The interpreter of every image."""

TOOLS = ("docker", "podman")
TOOL_VARIABLE = "ORCHESTRATE_CONTAINERS"

_SCHEME = "image:"
_CALL_S = 60.0
_GRACE_S = "2"
"""Less than the outer leash's, so that the container is gone before its client is killed."""
_SHARED_MEMORY = "8g"
_OURS = Path(__file__).parent
"""Programs of ours that are run with the image's Python: probes, vLLM's repair."""


def tool() -> str:
    """Path of the client: what ORCHESTRATE_CONTAINERS names, else docker, else podman. EngineError without one."""
    names = [os.environ[TOOL_VARIABLE]] if os.environ.get(TOOL_VARIABLE) else TOOLS
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise EngineError(f"an engine in an image needs {' or '.join(names)}, and PATH has none")
    return found


def image_id(image: str) -> str:
    """The image's content digest, `sha256:...`. EngineError for one that is not here: nothing is ever pulled."""
    try:
        found = _call("image", "inspect", "--format", "{{.Id}}", image)
    except EngineError as error:
        raise EngineError(f"image {image} cannot be used: {error}; if it is not here: {tool()} pull {image}") from error
    return found if found.startswith("sha256:") else f"sha256:{found}"


def address(identifier: str) -> str:
    """The image's Python, for `Engine.software`."""
    return f"{_SCHEME}{identifier}"


def python(interpreter: str) -> list[str]:
    """How to run that Python: a path of this machine is itself, an image's is a container without a network."""
    if not interpreter.startswith(_SCHEME):
        return [interpreter]
    line = [tool(), "run", "--rm", "--pull", "never", "--network", "none", *_mount(_OURS)]
    return [*line, "--entrypoint", PYTHON, interpreter.removeprefix(_SCHEME)]


def new_name() -> str:
    return f"orchestrate-{uuid.uuid4().hex[:12]}"


def command(
    name: str, deployment: Deployment, server: Sequence[str], variables: Iterable[str], leash: Path
) -> list[str]:
    """The client's command line for a server. Variables go by name: the client takes their values, which may be secret,
    from its own environment."""
    client = tool()
    line = [client, "run", "--rm", "--interactive", "--name", name, "--pull", "never"]
    line += ["--network", "host", "--shm-size", _SHARED_MEMORY, *_gpus(client, deployment.device)]
    for path in sorted({_OURS, leash, *_files(deployment.target), *_files(deployment.drafter)}):
        line += _mount(path)
    for variable in sorted(variables):
        line += ["--env", variable]
    held = ["-IS", str(leash), "--grace", _GRACE_S, "--", *server]
    return [*line, "--entrypoint", PYTHON, str(deployment.image), *held]


def first_process(name: str) -> int:
    """Process id, on this machine, of a running container's first process."""
    pid = _call("inspect", "--format", "{{.State.Pid}}", name)
    if not pid.isdecimal() or not Path("/proc", pid).exists():
        raise EngineError(f"container {name} runs on another machine (process {pid!r}) and cannot be watched")
    return int(pid)


def remove(name: str) -> None:
    """Have no such container, whatever state it is in. EngineError when the client does not answer."""
    _run("rm", "--force", name)


def _files(model: str | None) -> set[Path]:
    """A model's folder, and what links in it point to: Hugging Face's cache keeps its files elsewhere."""
    if model is None:
        return set()
    links = (path for path in Path(model).rglob("*") if path.is_symlink() and path.exists())
    return {Path(model), *(link.resolve() for link in links)}


def _mount(path: Path) -> list[str]:
    if "," in str(path) or '"' in str(path):
        raise EngineError(f"{path}: a path with a comma or a quotation mark cannot be mounted into a container")
    return ["--mount", f"type=bind,source={path},target={path},readonly"]


def _gpus(client: str, device: str) -> list[str]:
    """The GPUs that Ray gave the slot, or all where it gave none by name."""
    if device != "cuda":
        return []
    cards = os.environ.get("CUDA_VISIBLE_DEVICES")
    if Path(client).name == "podman":
        return [f"--device=nvidia.com/gpu={card}" for card in (cards or "all").split(",")]
    return ["--gpus", f'"device={cards}"' if cards else "all"]  # the quotation marks keep the commas in one CSV field


def _call(*arguments: str) -> str:
    done = _run(*arguments)
    if done.returncode:
        raise EngineError(one_line((done.stderr.strip().splitlines() or ["it says nothing"])[-1]))
    return done.stdout.strip()


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run([tool(), *arguments], capture_output=True, text=True, timeout=_CALL_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(one_line(str(error))) from error
