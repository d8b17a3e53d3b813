"""probes.jsonl: what a search found."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.records.base import Record


@dataclass(frozen=True)
class Place:
    budget: int
    concurrency: int


class Probe(Record):
    """A line of probes.jsonl: what was found at one place. Speeds are None where nothing was, and `reason` says why."""

    budget: int
    concurrency: int
    tok_s_user: float | None
    tok_s_all: float | None
    reason: str = ""

    @property
    def place(self) -> Place:
        return Place(self.budget, self.concurrency)
