"""What an adapter answers for its engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from engines.base.arms import Arm, Method
from engines.base.counters import SpecCounters, StageTimes
from engines.base.deployments import Deployment
from engines.base.identity import Identity
from engines.base.tokens import DraftTree, Ranking
from engines.base.wire import Call, Dialect, Endpoint


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
        """The argument list of the server, which may have the port after `port` for its own processes. Two arms with
        equal commands share one process; see `configure`.
        """

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
