"""What a server counts and times while it decodes, from its start on: a phase is the difference of two readings."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class SpecCounters:
    """Integer counters of speculative decoding, cumulative since the server started.

    `emitted` counts the tokens that verify steps gave out (the prefill's token excluded, after the cut at a stop
    token); `drafted` the verified nodes without the root; `accepted_by_depth[k]` the steps that accepted more than k
    draft tokens. Plain decoding counts one verify step a token and nothing drafted.
    """

    verify_steps: int = 0
    drafted: int = 0
    accepted: int = 0
    emitted: int = 0
    accepted_by_depth: tuple[int, ...] = ()

    def __sub__(self, earlier: SpecCounters) -> SpecCounters:
        width = max(len(self.accepted_by_depth), len(earlier.accepted_by_depth))
        return SpecCounters(
            self.verify_steps - earlier.verify_steps,
            self.drafted - earlier.drafted,
            self.accepted - earlier.accepted,
            self.emitted - earlier.emitted,
            tuple(a - b for a, b in zip(_pad(self, width), _pad(earlier, width), strict=True)),
        )

    @property
    def acceptance_length(self) -> float:
        """Tokens a verify step, the bonus token counted: 1 + accepted / verify_steps. NaN without a step."""
        return 1 + self.accepted / self.verify_steps if self.verify_steps else float("nan")


ALL_COUNTS = frozenset(item.name for item in fields(SpecCounters))
"""`Engine.server_counts` of a server that tells everything."""


def _pad(counters: SpecCounters, width: int) -> tuple[int, ...]:
    return counters.accepted_by_depth + (0,) * (width - len(counters.accepted_by_depth))


@dataclass(frozen=True)
class StageTimes:
    """Seconds the server spent in each stage of its decode steps, cumulative since it started.

    `host`: the rest of a step, and what lies between two while there is work. `prefill` is outside the `steps`.
    """

    steps: int = 0
    draft: float = 0.0
    build: float = 0.0
    verify: float = 0.0
    commit: float = 0.0
    host: float = 0.0
    prefill: float = 0.0

    def __sub__(self, earlier: StageTimes) -> StageTimes:
        return StageTimes(*(getattr(self, f.name) - getattr(earlier, f.name) for f in fields(self)))
