"""What an arm runs on: software, models and a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Deployment:
    """Where and how an engine is to run: resolved from the profile, the same for every arm of one engine.

    `software`: what `Engine.software` told. `arguments` and `environment` come on top of the adapter's own.
    `image`: content digest of the container image that `interpreter` is in; None for one of this machine.
    """

    software: str
    interpreter: str
    target: str
    target_digest: str
    drafter: str | None
    drafter_digest: str | None
    device: str
    dtype: str
    threads: int
    max_batch: int
    max_context: int
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    ready_timeout_s: float = 300.0
    image: str | None = None
