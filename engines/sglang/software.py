"""Which SGLang an interpreter has, and whether our plugin is beside it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from engines import probing
from engines.base import EngineError
from engines.sglang import probe

OLDEST = (0, 5, 17)
_CURE = "run: orchestrate engines install sglang-cuda and name it as the engine's interpreter"
_LINE = re.compile(r"sglang (?P<version>\d+\.\d+\.\d+[\w.+]*), torch [^,]+(?P<plugin>, ddtree-kernels \S+ code \w+)?")


@dataclass(frozen=True)
class Software:
    """A line of `engines.sglang.probe`, read; which image it is from does not matter. `plugin`: whether SGLang
    finds our ddtree plugin."""

    version: str
    plugin: bool

    @classmethod
    def parse(cls, line: str) -> Software:
        """EngineError for a version older than the adapter knows."""
        match = _LINE.fullmatch(line.partition(", image ")[0])
        if match is None:
            raise EngineError(f"not a description of SGLang: {line!r:.120}")
        numbers = tuple(int(number) for number in re.findall(r"\d+", match["version"])[:3])
        if numbers < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            raise EngineError(f"SGLang {match['version']} is older than {oldest}, the oldest supported")
        return cls(match["version"], match["plugin"] is not None)


def describe(interpreter: str) -> str:
    """The probe's line. EngineError when the interpreter has no SGLang that the adapter knows."""
    line = probing.ask(interpreter, probe.__file__, "SGLang", _CURE)
    Software.parse(line)
    return line
