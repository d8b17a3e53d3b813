"""How the control plane starts and asks vLLM, from 0.26 on."""

from __future__ import annotations

import asyncio
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
    Ranking,
    SpecCounters,
)
from engines.vllm import command, identity, metrics, requests, software, speculation

_RANKING_S = 120.0
_SETTLE_S = 0.05
_SETTLES = 40


class VllmEngine:
    """One process an arm: vLLM's method is fixed when it starts."""

    name = "vllm"
    methods = frozenset(speculation.OPTIONS)
    server_counts = ALL_COUNTS
    dialect = OPENAI

    def validate(self, arm: Arm, deployment: Deployment) -> None:
        speculation.check(arm)
        command.command(arm, deployment, 0)

    def software(self, interpreter: str) -> str:
        return software.describe(interpreter)

    def command(self, arm: Arm, deployment: Deployment, port: int) -> list[str]:
        return command.command(arm, deployment, port)

    def serve(self, arm: Arm, deployment: Deployment, host: str, port: int) -> list[str]:
        return [*command.command(arm, deployment, port), "--host", host]

    def env(self, arm: Arm, deployment: Deployment) -> Mapping[str, str]:
        return command.environment(arm, deployment)

    def endpoint(self, port: int) -> Endpoint:
        return Endpoint(f"http://127.0.0.1:{port}", command.MODEL)

    async def healthy(self, endpoint: Endpoint) -> bool:
        return await client.healthy(endpoint)

    def death(self, log: str) -> str:
        return ""

    async def configure(self, endpoint: Endpoint, arm: Arm) -> None:
        """Nothing: the command is the arm."""

    async def identify(self, endpoint: Endpoint) -> Identity:
        version = await client.get_json(endpoint, "/version")
        info = await client.get_json(endpoint, "/server_info?config_format=json")
        return await asyncio.to_thread(identity.identity, version, info, endpoint.place)

    async def counters(self, endpoint: Endpoint) -> SpecCounters:
        """Read until two readings agree: vLLM books a step's numbers after it has sent its tokens."""
        before = metrics.counters(await client.get_text(endpoint, "/metrics"))
        for _ in range(_SETTLES):
            await asyncio.sleep(_SETTLE_S)
            after = metrics.counters(await client.get_text(endpoint, "/metrics"))
            if after == before:
                return after
            before = after
        raise EngineError(f"{endpoint.base_url}: the counters still move {_SETTLES * _SETTLE_S:g} s after the load")

    async def stages(self, endpoint: Endpoint) -> None:
        """vLLM does not tell."""

    async def draft_trees(self, endpoint: Endpoint, token_ids: list[int], steps: int) -> None:
        """vLLM does not tell."""

    async def flush(self, endpoint: Endpoint) -> None:
        """The prefix cache is off unless the profile's arguments switch it on."""
        await client.post(endpoint, "/reset_prefix_cache")

    async def call(self, endpoint: Endpoint, chat: Mapping[str, Any]) -> Call:
        return Call(chat)

    def request_fields(self) -> Mapping[str, object]:
        return {"return_token_ids": True}

    def request_counters(self, chunk: Mapping[str, object]) -> SpecCounters | None:
        return requests.counters(chunk)

    async def ranking(self, endpoint: Endpoint, token_ids: list[int]) -> Ranking:
        body = requests.ranking_body(endpoint.model, token_ids)
        return requests.ranking(await client.post_json(endpoint, "/v1/completions", body, _RANKING_S))
