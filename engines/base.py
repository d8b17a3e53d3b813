"""What the control plane needs of an engine, and nothing more.

An engine is a server program in an environment of its own. An adapter says how to start it, asks it who it is and
reads its counters over HTTP; it never imports the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Protocol


class Method(StrEnum):
    """How an engine decodes."""

    AUTOREGRESSIVE = "autoregressive"
    DFLASH = "dflash"
    DDTREE = "ddtree"
    NGRAM = "ngram"
    EAGLE3 = "eagle3"


class EngineError(Exception):
    """The engine could not be started, reached or believed. The message is one line for the user."""


class IdentityError(EngineError):
    """The server runs something other than the arm says."""


@dataclass(frozen=True)
class Arm:
    """Engine x method x parameters: what a sweep compares.

    `budget` counts tree nodes without the root (DDTree, arXiv 2604.12989), so the target verifies budget + 1 tokens.
    """

    name: str
    engine: str
    method: Method
    budget: int | None = None
    chain: bool = False
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict)

    @property
    def speculative(self) -> bool:
        return self.method is not Method.AUTOREGRESSIVE

    @property
    def needs_drafter(self) -> bool:
        """Whether a model drafts; n-gram drafts come from the text itself."""
        return self.speculative and self.method is not Method.NGRAM


@dataclass(frozen=True)
class Deployment:
    """Where and how an engine is to run: resolved from the profile, the same for every arm of one engine.

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


class Place(Protocol):
    """Where a server runs, as far as its own words are about files there."""

    @property
    def port(self) -> int:
        """What the server listens on there."""

    def read(self, path: str) -> bytes | None:
        """A file as the server sees it; None where there is none."""

    def digest(self, folder: str) -> str | None:
        """`engines.digests.digest` of a folder there; None where there is none."""


@dataclass(frozen=True)
class Endpoint:
    """A started server. `headers` go with every request; `place` is None for one that this process started here."""

    base_url: str
    model: str
    headers: Mapping[str, str] = field(default_factory=dict)
    place: Place | None = None


@dataclass(frozen=True)
class Dialect:
    """Where an engine takes streamed requests, and what its answers look like.

    `reader`: `module:function` that turns an event of the stream into a chunk of an OpenAI chat completion, for the
    load generator's process, so it needs the standard library only; empty where events are such chunks.
    """

    path: str
    reader: str = ""


OPENAI = Dialect("/v1/chat/completions")


@dataclass(frozen=True)
class Call:
    """The body of a streamed request. `prompt_token_ids`: the prompt, where the answer will not tell."""

    body: Mapping[str, object]
    prompt_token_ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class Identity:
    """What a running server says it is. Stored with every trial."""

    engine: str
    version: str
    method: Method
    budget: int | None
    chain: bool
    block_size: int | None
    dtype: str
    device: str
    attention_backend: str
    target_digest: str
    drafter_digest: str | None
    settings: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)


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


def _pad(counters: SpecCounters, width: int) -> tuple[int, ...]:
    return counters.accepted_by_depth + (0,) * (width - len(counters.accepted_by_depth))


@dataclass(frozen=True)
class StageTimes:
    """Seconds the server spent in each stage of its decode steps, cumulative since it started."""

    steps: int = 0
    draft: float = 0.0
    build: float = 0.0
    verify: float = 0.0
    commit: float = 0.0
    host: float = 0.0
    prefill: float = 0.0

    def __sub__(self, earlier: StageTimes) -> StageTimes:
        return StageTimes(*(getattr(self, f.name) - getattr(earlier, f.name) for f in fields(self)))


@dataclass(frozen=True)
class Ranking:
    """The target's most probable next tokens after a prefix, best first, with their log-probabilities."""

    token_ids: tuple[int, ...]
    log_probs: tuple[float, ...]

    def regret(self, token_id: int) -> float:
        """How far the token's logit lies below the best one's (>= 0); infinite for a token that is not ranked."""
        if token_id not in self.token_ids:
            return float("inf")
        return self.log_probs[0] - self.log_probs[self.token_ids.index(token_id)]


@dataclass(frozen=True)
class DraftNode:
    """A node of a draft tree. `parent` is -1 at the root, the token emitted last; `log_prob` is the drafter's, of the
    whole path from the root."""

    token_id: int
    text: str
    parent: int
    depth: int
    log_prob: float


@dataclass(frozen=True)
class DraftTree:
    """One verify step. Nodes come root first and then best first, so that a smaller budget would have kept a beginning
    of them (an arm with `chain` aside). `accepted`: the nodes of the accepted path, the root included; the bonus token
    is the target's own after it."""

    nodes: tuple[DraftNode, ...]
    accepted: tuple[int, ...]
    bonus_id: int
    bonus_text: str


class Engine(Protocol):
    """One adapter per engine program. Stateless: everything about a running server is in its Endpoint."""

    name: str
    methods: frozenset[Method]
    server_counts: frozenset[str]
    """The fields of SpecCounters that `counters` tells; the others are the sum of what the requests tell."""
    dialect: Dialect

    def validate(self, arm: Arm, deployment: Deployment) -> None:
        """Raise EngineError when this engine cannot run the arm there, as far as that shows before it is started."""

    def software(self, interpreter: str) -> str:
        """Version of the engine, and of our code in it: part of a trial's identity.

        `engines.containers.python` says how to run an interpreter, which may be an image's.
        """

    def command(self, arm: Arm, deployment: Deployment, port: int) -> list[str]:
        """The argument list of the server. Two arms with equal commands share one process; see `configure`."""

    def serve(self, arm: Arm, deployment: Deployment, host: str, port: int) -> list[str]:
        """As `command`, of a server that comes up as the arm without `configure` and listens on `host`: a release."""

    def env(self, arm: Arm, deployment: Deployment) -> Mapping[str, str]:
        """Environment variables on top of the inherited ones."""

    def endpoint(self, port: int) -> Endpoint:
        """Where a server started with `command(..., port)` answers."""

    async def healthy(self, endpoint: Endpoint) -> bool:
        """Whether the server takes requests yet. False while it loads; never raises for a refused connection."""

    def death(self, log: str) -> str:
        """Why a server ended, in one line, where that takes knowledge of this engine's log; else empty."""

    async def configure(self, endpoint: Endpoint, arm: Arm) -> None:
        """Bring a running server to the arm, where one command serves several arms; else nothing to do."""

    async def identify(self, endpoint: Endpoint) -> Identity:
        """What the server says it is."""

    async def counters(self, endpoint: Endpoint) -> SpecCounters:
        """Counters since the server started."""

    async def stages(self, endpoint: Endpoint) -> StageTimes | None:
        """Stage times since the server started; None where the engine does not tell."""

    async def draft_trees(self, endpoint: Endpoint, token_ids: list[int], steps: int) -> tuple[DraftTree, ...] | None:
        """What is drafted and accepted in the first verify steps after a prompt, decoded greedily on an idle server;
        None where the engine does not tell."""

    async def flush(self, endpoint: Endpoint) -> None:
        """Empty the prefix cache. Nothing to do for an engine without one."""

    async def call(self, endpoint: Endpoint, chat: Mapping[str, Any]) -> Call:
        """An OpenAI chat completion's body in the engine's dialect. Asked for before a load's first request is sent."""

    def request_fields(self) -> Mapping[str, object]:
        """Fields added to every request body so that token ids and per-request counters come back."""

    def request_counters(self, chunk: Mapping[str, object]) -> SpecCounters | None:
        """One request's counters from the final (usage) chunk of its stream; None where the engine does not tell."""

    async def ranking(self, endpoint: Endpoint, token_ids: list[int]) -> Ranking:
        """The best next tokens after `token_ids`: the equivalence gate's evidence."""


def check_identity(identity: Identity, arm: Arm, deployment: Deployment) -> None:
    """Raise IdentityError where the server's own words differ from what was asked for. The longest context (so that all
    arms answer the same requests) and options are compared with the settings of their names, where there are any."""
    expected = {
        "engine": arm.engine,
        "method": arm.method,
        "budget": arm.budget,
        "chain": arm.chain,
        "target_digest": deployment.target_digest,
        "drafter_digest": deployment.drafter_digest if arm.needs_drafter else identity.drafter_digest,
        "dtype": deployment.dtype,
    }
    pairs: list[tuple[str, object, object]]
    pairs = [(name, getattr(identity, name), value) for name, value in expected.items()]
    told = identity.settings
    asked = {"max_context": deployment.max_context} | dict(arm.options)
    pairs += [(name, told[name], value) for name, value in asked.items() if name in told]
    for name, actual, value in pairs:
        if actual != value:
            raise IdentityError(f"arm {arm.name!r}: the server says {name} = {actual!r}, the arm says {value!r}")
