"""How the control plane starts and asks the reference engine."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engines import client, containers
from engines.base import (
    ALL_COUNTS,
    OPENAI,
    Arm,
    Call,
    Deployment,
    DraftTree,
    Endpoint,
    EngineError,
    Identity,
    Method,
    Ranking,
    SpecCounters,
    StageTimes,
)
from engines.messages import one_line
from engines.reference.model.config import read_target_config
from engines.reference.serving.options import DTYPES

_MODEL = "target"
_SOFTWARE_S = 60
_RANKING_S = 120.0
_RANKED = 5


class ReferenceEngine:
    """One process serves all arms of a deployment: the method comes by /configure, while the server is idle."""

    name = "reference"
    methods = frozenset({Method.AUTOREGRESSIVE, Method.DFLASH, Method.DDTREE})
    server_counts = ALL_COUNTS
    dialect = OPENAI

    def validate(self, arm: Arm, deployment: Deployment) -> None:
        if arm.method not in self.methods:
            raise EngineError(f"engine reference has no method {arm.method}; it has {', '.join(sorted(self.methods))}")
        if (arm.budget is not None) != (arm.method is Method.DDTREE):
            raise EngineError("`budget` is required for method ddtree and not allowed for any other")
        if arm.options:
            raise EngineError(f"engine reference has no options; remove {', '.join(sorted(arm.options))}")
        if deployment.dtype not in DTYPES:
            raise EngineError(f"engine reference has no dtype {deployment.dtype}; it has {', '.join(DTYPES)}")
        _check_context(Path(deployment.target), deployment.max_context)

    def software(self, interpreter: str) -> str:
        command = [*containers.python(interpreter), "-m", "engines.reference.software"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SOFTWARE_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EngineError(f"interpreter {interpreter}: {error}") from error
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
            raise EngineError(f"interpreter {interpreter} cannot run the reference engine: {reason}")
        return done.stdout.strip()

    def command(self, arm: Arm, deployment: Deployment, port: int) -> list[str]:
        command = [deployment.interpreter, "-m", "engines.reference.server"]
        command += ["--target", deployment.target]
        if deployment.drafter is not None:
            command += ["--drafter", deployment.drafter]
        command += ["--model-name", _MODEL, "--dtype", deployment.dtype, "--device", deployment.device]
        command += ["--threads", str(deployment.threads), "--max-batch", str(deployment.max_batch)]
        command += ["--max-context", str(deployment.max_context)]
        return [*command, "--host", "127.0.0.1", "--port", str(port), *deployment.arguments]

    def serve(self, arm: Arm, deployment: Deployment, host: str, port: int) -> list[str]:
        command = [*self.command(arm, deployment, port), "--host", host, "--method", arm.method.value]
        command += ["--budget", str(arm.budget)] if arm.budget is not None else []
        return [*command, "--chain"] if arm.chain else command

    def env(self, arm: Arm, deployment: Deployment) -> Mapping[str, str]:
        return {"OMP_NUM_THREADS": str(deployment.threads), "TOKENIZERS_PARALLELISM": "false"} | dict(
            deployment.environment
        )

    def endpoint(self, port: int) -> Endpoint:
        return Endpoint(f"http://127.0.0.1:{port}", _MODEL)

    async def healthy(self, endpoint: Endpoint) -> bool:
        return await client.healthy(endpoint)

    def death(self, log: str) -> str:
        return ""

    async def configure(self, endpoint: Endpoint, arm: Arm) -> None:
        body = {"method": arm.method.value, "budget": arm.budget, "chain": arm.chain}
        await client.post_json(endpoint, "/configure", body)

    async def identify(self, endpoint: Endpoint) -> Identity:
        return await client.identity(endpoint)

    async def counters(self, endpoint: Endpoint) -> SpecCounters:
        return await client.counters(endpoint)

    async def stages(self, endpoint: Endpoint) -> StageTimes:
        return await client.stages(endpoint)

    async def draft_trees(self, endpoint: Endpoint, token_ids: list[int], steps: int) -> tuple[DraftTree, ...]:
        return await client.draft_trees(endpoint, token_ids, steps)

    async def flush(self, endpoint: Endpoint) -> None:
        """The engine has no prefix cache."""

    async def call(self, endpoint: Endpoint, chat: Mapping[str, Any]) -> Call:
        return Call(chat)

    def request_fields(self) -> Mapping[str, object]:
        return {"return_token_ids": True}

    def request_counters(self, chunk: Mapping[str, object]) -> SpecCounters | None:
        return client.usage_counters(chunk)

    async def ranking(self, endpoint: Endpoint, token_ids: list[int]) -> Ranking:
        body = {
            "model": endpoint.model,
            "prompt": token_ids,
            "max_tokens": 1,
            "temperature": 0,
            "ignore_eos": True,
            "logprobs": _RANKED,
            "return_token_ids": True,
        }
        answer = await client.post_json(endpoint, "/v1/completions", body, _RANKING_S)
        try:
            logprobs = answer["choices"][0]["logprobs"]
            return Ranking(tuple(logprobs["top_token_ids"][0]), tuple(logprobs["top_token_logprobs"][0]))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise EngineError(f"{endpoint.base_url}: the log-probabilities cannot be read: {answer!r:.200}") from error


def _check_context(target: Path, max_context: int) -> None:
    """Raise EngineError for a target that cannot be loaded or has fewer positions. A plan may name one that is not
    fetched yet; of that nothing is known."""
    if not target.exists():
        return
    try:
        positions = read_target_config(target).max_positions
    except (OSError, ValueError) as error:
        raise EngineError(one_line(str(error))) from error
    if not 2 <= max_context <= positions:
        raise EngineError(f"max_context must lie in 2..{positions}, the positions of {target.name}, got {max_context}")
