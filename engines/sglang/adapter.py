"""How the control plane starts and asks SGLang, from 0.5.17 on: stock, or with our ddtree plugin."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from engines import client
from engines.base import Arm, Call, Deployment, Dialect, Endpoint, Identity, Ranking, SpecCounters
from engines.sglang import command, context, deaths, identity, metrics, report, requests, software, speculation

_RANKING_S = 120.0
_FLUSH_S = 10


class SglangEngine:
    """One process an arm: SGLang's algorithm is fixed when it starts."""

    name = "sglang"
    methods = frozenset(speculation.OPTIONS)
    server_counts = frozenset({"verify_steps", "emitted"})
    dialect = Dialect("/generate", "engines.sglang.requests:chunk")

    def validate(self, arm: Arm, deployment: Deployment) -> None:
        speculation.check(arm)
        requests.check_tokenizer(deployment.target)
        self.command(arm, deployment, 0)
        command.environment(arm, deployment)
        context.check(arm, deployment)

    def software(self, interpreter: str) -> str:
        return software.describe(interpreter)

    def command(self, arm: Arm, deployment: Deployment, port: int) -> list[str]:
        return command.command(arm, deployment, port, rendezvous=command.rendezvous(deployment, port + 1))

    def serve(self, arm: Arm, deployment: Deployment, host: str, port: int) -> list[str]:
        return command.command(arm, deployment, port, host, report.served_path(deployment.target, port))

    def env(self, arm: Arm, deployment: Deployment) -> Mapping[str, str]:
        return command.environment(arm, deployment)

    def endpoint(self, port: int) -> Endpoint:
        return Endpoint(f"http://127.0.0.1:{port}", command.MODEL)

    async def healthy(self, endpoint: Endpoint) -> bool:
        return await client.healthy(endpoint)

    def death(self, log: str) -> str:
        return deaths.cause(log)

    async def configure(self, endpoint: Endpoint, arm: Arm) -> None:
        """The command is the arm. But the collector of Python's garbage is told to leave alone what start-up made, as
        0.5.23 tells it by itself: a pass over that stops the HTTP process of 0.5.17 for half a second under load.
        """
        await client.post(endpoint, "/freeze_gc")

    async def identify(self, endpoint: Endpoint) -> Identity:
        info = await client.get_json(endpoint, "/server_info")
        port = urlsplit(endpoint.base_url).port or 0
        return await asyncio.to_thread(identity.identity, info, port, endpoint.place)

    async def counters(self, endpoint: Endpoint) -> SpecCounters:
        info = await client.get_json(endpoint, "/server_info")
        return metrics.counters(await client.get_text(endpoint, "/metrics"), identity.speculative(info))

    async def stages(self, endpoint: Endpoint) -> None:
        """SGLang does not tell."""

    async def draft_trees(self, endpoint: Endpoint, token_ids: list[int], steps: int) -> None:
        """SGLang does not tell."""

    async def flush(self, endpoint: Endpoint) -> None:
        """The cache is off unless the arm switches it on. SGLang flushes when it is idle, and is given time to be."""
        await client.post(endpoint, f"/flush_cache?timeout={_FLUSH_S}")

    async def call(self, endpoint: Endpoint, chat: Mapping[str, Any]) -> Call:
        answer = await client.post_json(endpoint, "/v1/tokenize", requests.tokenize_body(chat))
        prompt = requests.token_ids(answer)
        return Call(requests.generate_body(chat, prompt), tuple(prompt))

    def request_fields(self) -> Mapping[str, object]:
        return {}

    def request_counters(self, chunk: Mapping[str, object]) -> SpecCounters | None:
        return requests.counters(chunk)

    async def ranking(self, endpoint: Endpoint, token_ids: list[int]) -> Ranking:
        answer = await client.post_json(endpoint, self.dialect.path, requests.ranking_body(token_ids), _RANKING_S)
        return requests.ranking(answer)
