"""trial.json and journal.jsonl: one trial, what was measured and what became of it."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from orchestrator.records.base import Record


class TrialState(StrEnum):
    """`invalid`: the engine failed, or what it did cannot count. `failed`: the slot itself was lost."""

    STARTED = "started"
    VALID = "valid"
    INVALID = "invalid"
    FAILED = "failed"


class PhaseRecord(Record):
    """A stretch of a trial and the output tokens that came in it."""

    seconds: float
    tokens: float


class LoadRecord(Record):
    """How a trial's load was offered and read.

    `cores` are the CPUs of the load client; without `own_core` the engine may run there, too. `lag_ms_p99`: from a
    request's schedule to its bytes on the wire. `coalesced_share`: content chunks that came in one read with the one
    before them. Ramp and drain are what lies before and after the trial's window.
    """

    pattern: str
    cores: list[int]
    own_core: bool
    startup_s: float
    cpu_s: float
    lag_ms_p99: float | None
    coalesced_share: float
    ramp: PhaseRecord
    drain: PhaseRecord


class TrialRecord(Record):
    """trial.json: what was measured, on what, and whether it counts."""

    digest: str
    arm: str
    concurrency: int = Field(ge=1)
    block: int
    state: TrialState
    reason: str = ""
    slot: str
    identity: dict[str, object]
    counters: dict[str, object]
    stages: dict[str, float] | None
    warmup_requests: int
    warmup_flat: bool
    started_at: str
    duration: float
    window: tuple[float, float]
    load: LoadRecord | None = None
    hardware: dict[str, object] = Field(default_factory=dict)


class JournalEntry(Record):
    """One line of journal.jsonl: a trial changed state."""

    time: str
    trial: str
    arm: str
    concurrency: int
    block: int
    state: TrialState
    slot: str = ""
    reason: str = ""
    seconds: float = 0.0
