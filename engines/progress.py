"""How a fetch tells what it is doing."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

Progress = Callable[[str, float], None]
"""Called with the stage and the seconds since the fetch began, several times a second."""


@dataclass
class Clock:
    """Reports stages to the callback, if there is one."""

    callback: Progress | None
    started: float = field(default_factory=time.monotonic)

    def show(self, stage: str) -> None:
        if self.callback:
            self.callback(stage, time.monotonic() - self.started)
