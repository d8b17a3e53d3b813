"""How the control plane starts and asks the fake engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from engines import client
from engines.base import (
    ALL_COUNTS,
    OPENAI,
    Arm,
    Call,
    Deployment,
    Endpoint,
    EngineError,
    Identity,
    Method,
    Ranking,
    SpecCounters,
    StageTimes,
)
from engines.fake.script import START_OPTIONS, Script


class FakeEngine:
    """Arms choose latencies and failures by their options (see Script); equal START_OPTIONS share a process."""

    name = "fake"
    methods = frozenset({Method.AUTOREGRESSIVE, Method.DFLASH, Method.DDTREE})
    server_counts = ALL_COUNTS
    dialect = OPENAI

    def validate(self, arm: Arm, deployment: Deployment) -> None:
        try:
            Script.parse(_script(arm))
        except ValueError as error:
            raise EngineError(str(error)) from error

    def software(self, interpreter: str) -> str:
        return "fake 1 (simulated)"

    def command(self, arm: Arm, deployment: Deployment, port: int) -> list[str]:
        start = {name: arm.options[name] for name in START_OPTIONS if name in arm.options}
        return _command(start, deployment, port)

    def serve(self, arm: Arm, deployment: Deployment, host: str, port: int) -> list[str]:
        return [*_command(_script(arm), deployment, port), "--host", host]

    def env(self, arm: Arm, deployment: Deployment) -> Mapping[str, str]:
        return dict(deployment.environment)

    def endpoint(self, port: int) -> Endpoint:
        return Endpoint(f"http://127.0.0.1:{port}", "fake")

    async def healthy(self, endpoint: Endpoint) -> bool:
        return await client.healthy(endpoint)

    def death(self, log: str) -> str:
        return ""

    async def configure(self, endpoint: Endpoint, arm: Arm) -> None:
        await client.post_json(endpoint, "/configure", _script(arm))

    async def identify(self, endpoint: Endpoint) -> Identity:
        return await client.identity(endpoint)

    async def counters(self, endpoint: Endpoint) -> SpecCounters:
        return await client.counters(endpoint)

    async def stages(self, endpoint: Endpoint) -> StageTimes:
        return await client.stages(endpoint)

    async def draft_trees(self, endpoint: Endpoint, token_ids: list[int], steps: int) -> None:
        """The script drafts nothing."""

    async def flush(self, endpoint: Endpoint) -> None:
        """The engine has no prefix cache."""

    async def call(self, endpoint: Endpoint, chat: Mapping[str, Any]) -> Call:
        return Call(chat)

    def request_fields(self) -> Mapping[str, object]:
        return {"return_token_ids": True}

    def request_counters(self, chunk: Mapping[str, object]) -> SpecCounters | None:
        return client.usage_counters(chunk)

    async def ranking(self, endpoint: Endpoint, token_ids: list[int]) -> Ranking:
        answer = await client.post_json(endpoint, "/ranking", {"token_ids": token_ids})
        try:
            return Ranking(tuple(answer["token_ids"]), tuple(answer["log_probs"]))
        except (KeyError, TypeError) as error:
            raise EngineError(f"{endpoint.base_url}: the ranking cannot be read: {answer!r:.200}") from error


def _command(script: Mapping[str, Any], deployment: Deployment, port: int) -> list[str]:
    command = [deployment.interpreter, "-m", "engines.fake.server", "--port", str(port)]
    command += ["--script", json.dumps(script, sort_keys=True), "--dtype", deployment.dtype]
    command += ["--device", deployment.device, "--target-digest", deployment.target_digest]
    if deployment.drafter_digest is not None:
        command += ["--drafter-digest", deployment.drafter_digest]
    return [*command, *deployment.arguments]


def _script(arm: Arm) -> dict[str, Any]:
    return {**arm.options, "method": arm.method.value, "budget": arm.budget, "chain": arm.chain}
