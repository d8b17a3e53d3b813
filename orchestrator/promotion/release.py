"""A release: a decision frozen into everything that decides what is served, in a folder named by its content.

    releases/<arm>-<id>/   release.json  decision.json  environment.json  packages.json  sweep.yaml  SHA256SUMS

`id` is the beginning of the sha256 of SHA256SUMS. The same run gives the same release.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines.base import Arm, Deployment
from orchestrator.errors import InputError
from orchestrator.promotion import tree
from orchestrator.prompts import Prompt
from orchestrator.records import Interval, Record
from orchestrator.store import read_record

ID_LENGTH = 12
RELEASE = "release.json"


class SmokePrompt(Record):
    """A prompt with the greedy answer that the run stored for it, and how it came. `tpot_ms` is None for one chunk."""

    prompt_id: str
    task: str
    messages: list[tuple[str, str]]
    prompt_token_ids: list[int]
    token_ids: list[int]
    finish_reason: str
    verify_steps: int
    accepted: int
    tpot_ms: float | None

    def prompt(self) -> Prompt:
        return Prompt(self.prompt_id, self.task, tuple(self.messages))


class Promise(Record):
    """What the run measured for the arm at the decision's concurrency."""

    concurrency: int
    acceptance_length: Interval
    tpot_ms: Interval
    output_tok_s: Interval
    ttft_ms_p90: float
    tpot_ms_p90: float


class ReleaseRecord(Record):
    """release.json. `gpu`: Ray's name of the accelerator measured on, `gpus` of them a server; None for a CPU, when
    `cpu` is what counts.

    `smoke_*`: intervals over the smoke prompts alone, which is what the smoke test sends.
    """

    run: str
    profile: str
    verdict: str
    sentence: str
    arm: Arm
    deployment: Deployment
    identity: dict[str, object]
    gpu: str | None
    gpus: int
    gpu_memory_bytes: int
    gpu_driver: str | None
    cpu: str
    memory_bytes: int
    commit: str | None
    max_tokens: int
    request_timeout_s: float
    near_tie_gap: float
    confidence: float
    promise: Promise
    smoke: list[SmokePrompt]
    smoke_acceptance_length: Interval
    smoke_tpot_ms: Interval

    @property
    def simulated(self) -> bool:
        """Whether the measured engine only played one."""
        settings = self.identity.get("settings")
        return isinstance(settings, dict) and bool(settings.get("simulated"))


@dataclass(frozen=True)
class Release:
    """A release on this machine. `id` names it everywhere; `name` is its folder's, for people."""

    id: str
    folder: Path
    record: ReleaseRecord

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def models(self) -> dict[str, str]:
        """Model digest to its folder on the machine that measured."""
        deployed = self.record.deployment
        found = {deployed.target_digest: deployed.target}
        if self.record.arm.needs_drafter and deployed.drafter and deployed.drafter_digest:
            found[deployed.drafter_digest] = deployed.drafter
        return found


def load_release(folder: Path) -> Release:
    """A release whose every file is what its name says. InputError names the file that was tampered with."""
    try:
        recorded = (folder / tree.SUMS).read_text(encoding="utf-8")
        differing = tree.difference(recorded, tree.sums(folder))
    except (OSError, ValueError) as error:
        raise InputError(f"{folder}: not a release: {error}") from error
    identifier = tree.identity(recorded)[:ID_LENGTH]
    if not differing and not folder.name.endswith(f"-{identifier}"):
        differing = f"{tree.SUMS} was changed"
    if differing:
        raise InputError(f"{folder}: this release was tampered with: {differing}; it is never deployed")
    return Release(identifier, folder, read_record(folder / RELEASE, ReleaseRecord))


def list_releases(folder: Path) -> list[Path]:
    """Folders of releases, the newest last."""
    return sorted((path.parent for path in folder.glob(f"*/{tree.SUMS}")), key=lambda path: path.stat().st_mtime)


def packages_of(folder: Path) -> dict[str, Any]:
    """packages.json of a release."""
    return dict(json.loads((folder / "packages.json").read_text(encoding="utf-8")))
