"""The fake engine's script: which tokens, in which steps, and which failure."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from engines.base import Method, SpecCounters

FAILURES = {
    "start": "ends with an error before it listens",
    "never_ready": "/health answers 503 for ever",
    "exit": "the process ends in the middle of an answer",
    "hang": "an answer stops without an end",
    "cut": "the connection closes in the middle of an answer",
    "garbage": "a chunk is not JSON",
    "no_usage": "the usage is missing",
    "error": "an error event in the middle of an answer",
    "identity": "/server_info names another budget and method",
    "slow": "steps take SLOWED times as long",
}
SLOWED = 25.0
DEFECTS = "FAKE_ENGINE_DEFECTS"
"""Environment variable: options, as JSON, of a server that is not what its arm says. For tests of promotion."""
START_OPTIONS = ("fail", "ready_after_s")
"""What has to be known before the server listens, and so is part of its command."""
VOCABULARY = 1000
BLOCK_SIZE = 8


@dataclass(frozen=True)
class Script:
    """An arm's options; see FAILURES for `fail`, which strikes after `fail_after` good requests.

    `tokens_per_step` may be fractional; `wrong_after` = first output position whose token is the second best one.
    """

    method: Method = Method.AUTOREGRESSIVE
    budget: int | None = None
    chain: bool = False
    ttft_ms: float = 2.0
    step_ms: float = 1.0
    tokens_per_step: float = 0.0
    stop_after: int = 0
    wrong_after: int = -1
    gap: float = 1.0
    cached_tokens: int = 0
    ready_after_s: float = 0.0
    fail: str = ""
    fail_after: int = 0

    def __post_init__(self) -> None:
        if self.fail and self.fail not in FAILURES:
            raise ValueError(f"`fail` must be one of {', '.join(FAILURES)}, got {self.fail!r}")
        if self.tokens_per_step and not 1 <= self.tokens_per_step <= self.widest_step:
            raise ValueError(f"`tokens_per_step` must be between 1 and {self.widest_step} for method {self.method}")

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Script:
        """ValueError (one line) for an option that does not exist or has another type."""
        known = {field.name: type(field.default) for field in fields(cls) if field.name not in ("method", "budget")}
        for name, value in values.items():
            if name in ("method", "budget"):
                continue
            if name not in known:
                raise ValueError(f"engine fake has no option {name!r}; it has {', '.join(sorted(known))}")
            if not (type(value) is known[name] or (type(value) is int and known[name] is float)):
                raise ValueError(f"`{name}` must be of type {known[name].__name__}, got {value!r}")
        return cls(**dict(values) | {"method": Method(values.get("method", Method.AUTOREGRESSIVE))})

    @property
    def drafted(self) -> int:
        """Draft tokens a step."""
        if self.method is Method.AUTOREGRESSIVE:
            return 0
        return self.budget or BLOCK_SIZE - 1

    @property
    def widest_step(self) -> int:
        return 1 + min(self.drafted, BLOCK_SIZE - 1)

    @property
    def pace(self) -> float:
        """Tokens a verify step."""
        return self.tokens_per_step or min(3, self.widest_step)

    def tokens(self, prompt: Sequence[int]) -> Iterator[int]:
        """The endless answer. Each token is a function of all before it, as in a greedy engine."""
        state, position = prefix_state(prompt), 0
        while True:
            first, second = candidates(state)
            token = second if position == self.wrong_after else first
            yield token
            state, position = _advance(state, token), position + 1

    def steps(self, tokens: int) -> Iterator[tuple[int, int]]:
        """(emitted, accepted) of each verify step, until `tokens` are out; the last step may be cut."""
        done, step = 0, 0
        while done < tokens:
            step += 1
            whole = int(step * self.pace) - int((step - 1) * self.pace)
            emitted = min(whole, tokens - done)
            done += emitted
            yield emitted, min(whole - 1, emitted)

    def count(self, counters: SpecCounters, emitted: int, accepted: int) -> SpecCounters:
        """`counters` after one more verify step."""
        depths = list(counters.accepted_by_depth) + [0] * (accepted - len(counters.accepted_by_depth))
        return SpecCounters(
            counters.verify_steps + 1,
            counters.drafted + self.drafted,
            counters.accepted + accepted,
            counters.emitted + emitted,
            tuple(steps + (depth < accepted) for depth, steps in enumerate(depths)),
        )


def prefix_state(token_ids: Sequence[int]) -> int:
    state = 0
    for token_id in token_ids:
        state = _advance(state, token_id)
    return state


def candidates(state: int) -> tuple[int, int]:
    """The two most probable next tokens after a prefix."""
    first = state % VOCABULARY
    return first, (first + 1 + state // VOCABULARY % (VOCABULARY - 1)) % VOCABULARY


def _advance(state: int, token_id: int) -> int:
    return zlib.crc32(token_id.to_bytes(4, "little"), state)
