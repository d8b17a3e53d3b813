"""What goes into the engine and what comes out: requests, methods, emissions, counters."""

from dataclasses import dataclass, field
from typing import Literal, get_args

MethodName = Literal["autoregressive", "dflash", "ddtree"]
FinishReason = Literal["stop", "length"]
TopLogprobs = tuple[tuple[int, float], ...]
"""(token id, natural-log probability) of the most probable tokens at one position, best first."""


@dataclass(frozen=True)
class Method:
    """How tokens are decoded. `budget` = drafted tree nodes excluding the root; only ddtree takes one.

    `chain` forces the drafter's greedy chain into the tree.
    """

    name: MethodName
    budget: int | None = None
    chain: bool = False

    def __post_init__(self) -> None:
        if self.name not in get_args(MethodName):
            raise ValueError(f"method {self.name!r}: must be one of {', '.join(get_args(MethodName))}")
        if self.name == "ddtree" and (self.budget is None or self.budget < 1):
            raise ValueError(f"method ddtree needs a budget of at least 1, got {self.budget}")
        if self.name != "ddtree" and (self.budget is not None or self.chain):
            raise ValueError(f"method {self.name} takes neither a budget nor chain")


@dataclass(frozen=True)
class SamplingParams:
    """temperature 0 = greedy; top_k 0, top_p 1 and min_p 0 filter nothing; `logprobs` = top-n per emitted token.

    top_k, then top_p, then min_p filter the tempered distribution. `seed` and the token's position alone fix a draw.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0
    max_tokens: int = 16
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None

    def __post_init__(self) -> None:
        _require(self.temperature >= 0, f"temperature must be at least 0, got {self.temperature}")
        _require(0 < self.top_p <= 1, f"top_p must be in (0, 1], got {self.top_p}")
        _require(self.top_k >= 0, f"top_k must be at least 0 (0 = off), got {self.top_k}")
        _require(0 <= self.min_p <= 1, f"min_p must be in [0, 1], got {self.min_p}")
        _require(self.max_tokens >= 1, f"max_tokens must be at least 1, got {self.max_tokens}")
        _require(self.logprobs is None or self.logprobs >= 1, f"logprobs must be at least 1, got {self.logprobs}")


@dataclass(frozen=True)
class GenerationRequest:
    request_id: str
    prompt_ids: tuple[int, ...]
    params: SamplingParams


@dataclass
class SpecStats:
    """Integer counters of verify steps; the prefill's token is in none of them.

    drafted: verified nodes without the root. accepted: draft tokens accepted and emitted. emitted: tokens emitted by
    verify steps after the cut at a stop token or max_tokens, so emitted <= verify_steps + accepted, and less only where
    the last step was cut. accepted_by_depth[k]: verify steps that emitted more than k accepted draft tokens.
    Autoregressive decoding counts a decode step as a verify step with nothing drafted.
    """

    verify_steps: int = 0
    drafted: int = 0
    accepted: int = 0
    emitted: int = 0
    accepted_by_depth: list[int] = field(default_factory=list)

    def record(self, drafted: int, accepted: int, emitted: int) -> None:
        """Count one verify step of one sequence."""
        self.verify_steps += 1
        self.drafted += drafted
        self.accepted += accepted
        self.emitted += emitted
        self.accepted_by_depth.extend([0] * (accepted - len(self.accepted_by_depth)))
        for depth in range(accepted):
            self.accepted_by_depth[depth] += 1


@dataclass
class StageTimes:
    """Wall-clock seconds spent in each stage, and how often steps ran.

    host: everything in a decode step outside its four stages, and between two steps while there is work. prefill: whole
    prefill steps.
    """

    draft: float = 0.0
    build: float = 0.0
    verify: float = 0.0
    commit: float = 0.0
    host: float = 0.0
    prefill: float = 0.0
    decode_steps: int = 0
    prefill_steps: int = 0


@dataclass(frozen=True)
class Emission:
    """Tokens of one request from one engine step, in order. `stats` is a snapshot of the request's counters so far.

    `top_logprobs` has one entry a token when the request asked for logprobs, else it is empty.
    """

    request_id: str
    token_ids: list[int]
    finish_reason: FinishReason | None
    stats: SpecStats
    top_logprobs: tuple[TopLogprobs, ...] = ()


@dataclass(frozen=True)
class DraftTree:
    """One verify step of one request, recorded: a value a node, the root first, then best first.

    scores: the drafter's log-probability of the path from the root. accepted: indices of the accepted path's nodes, the
    root included. bonus: the target's token after it.
    """

    tokens: list[int]
    parents: list[int]
    depths: list[int]
    scores: list[float]
    accepted: list[int]
    bonus: int


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)
