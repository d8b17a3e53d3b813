"""Engines whose program is scripted: laid down as distributions, deployed, and run in a slot."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engines.base import Arm, Deployment, Method
from engines.digests import digest
from orchestrator.measure import Measurement
from orchestrator.plan import Trial
from orchestrator.records import TrialState
from orchestrator.slots import Slot
from tests.orchestrator.acting import trial
from tests.orchestrator.processes import VARIABLE, eventually, marked

BLOCK = 8
"""The drafter's block size."""
TOKENS = 13
"""Of an answer: one, and four steps of three."""


@dataclass(frozen=True)
class Scripted:
    """`distribution` fills a folder for PYTHONPATH; the environment variable `script` says how the server fails."""

    engine: str
    script: str
    distribution: Callable[[Path], Path]
    deployment: Callable[..., Deployment]

    def arm(self, method: Method, **options: Any) -> Arm:
        return Arm("subject", self.engine, method, options=options)


@dataclass
class Bench:
    """A slot, and deployments of the scripted server that it can start."""

    scripted: Scripted
    slot: Slot
    folder: Path
    mark: str

    def deployment(self, script: str = "", **changes: Any) -> Deployment:
        target, drafter = self.folder / "target", self.folder / "drafter"
        environment = {"PYTHONPATH": str(self.folder / "site"), VARIABLE: self.mark, self.scripted.script: script}
        models = {"target": str(target), "target_digest": digest(target)}
        models |= {"drafter": str(drafter), "drafter_digest": digest(drafter)}
        return self.scripted.deployment(**models | {"environment": environment} | changes)

    async def run(self, script: str = "", subject: Arm | None = None, **changes: Any) -> Measurement:
        """A trial; without a `subject` of linear DFlash."""
        subject = subject or self.scripted.arm(Method.DFLASH)
        return await self.slot.run(scripted_trial(self.deployment(script, **changes), subject))

    def costs_its_own_trial(self, measured: Measurement, reason: str) -> None:
        """The fault is told in one line, and nothing of it is left in the slot."""
        assert measured.record.state is TrialState.INVALID
        assert reason in measured.record.reason
        assert "\n" not in measured.record.reason
        assert eventually(lambda: marked(self.mark) == {}), "the slot is free"


def scripted_trial(deployed: Deployment, subject: Arm) -> Trial:
    """A trial of the fake sweep's prompts, as this arm's."""
    warmup = {"min_requests": 1, "max_requests": 1}
    planned = trial(method="dflash", warmup=warmup, workload={"prompts": {"count": 8}, "max_tokens": TOKENS})
    return replace(planned, arm=subject, deployment=deployed)


def model_folder(folder: Path, **config: Any) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(folder.name.encode())
    return folder


def metadata(folder: Path, name: str, version: str) -> Path:
    """What importlib.metadata finds of a distribution."""
    found = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    found.mkdir()
    (found / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return found
