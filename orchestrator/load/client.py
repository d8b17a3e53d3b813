"""The load client: hands prompts to a child process that sends them, and makes answers of what it reports.

The child's stamps are CLOCK_MONOTONIC's, as time.perf_counter()'s here: one clock for all processes of a machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from engines.base import Call, Endpoint, Engine, EngineError
from orchestrator.answer import Answer
from orchestrator.load.arrivals import Arrival
from orchestrator.load.cores import Cores, share_all
from orchestrator.load.loops import NOT_SENT
from orchestrator.load.worker import Worker, WorkerLostError
from orchestrator.prompts import Prompt
from orchestrator.spec import WorkloadSpec


@dataclass(frozen=True)
class LoadResult:
    """All answers in the order sent. `stopped`: why the load as a whole ended early; empty when it did not.

    `cpu_s`: CPU seconds of the process that sent them.
    """

    answers: list[Answer]
    stopped: str = ""
    cpu_s: float = 0.0

    @property
    def failure(self) -> str:
        """What keeps the load from counting, in one line: mostly the first failed request. Empty for nothing."""
        if self.stopped:
            return self.stopped
        failed = [answer for answer in self.answers if answer.error and answer.error != NOT_SENT]
        return f"request {failed[0].prompt.prompt_id}: {failed[0].error}" if failed else ""

    @property
    def coalesced_share(self) -> float:
        """Content chunks that came in one read with the one before them, of all: their stamps say nothing apart."""
        chunks = sum(answer.chunks for answer in self.answers)
        return sum(answer.coalesced for answer in self.answers) / chunks if chunks else 0.0

    @property
    def lag_s(self) -> float | None:
        """99th percentile (nearest rank) of the time from a request's schedule to its bytes on the wire."""
        lags = sorted(answer.sent - answer.scheduled for answer in self.answers if not math.isnan(answer.sent))
        return lags[math.ceil(0.99 * len(lags)) - 1] if lags else None


class LoadClient:
    """Sends requests to one server from a process of its own. An async context manager."""

    def __init__(
        self,
        engine: Engine,
        endpoint: Endpoint,
        workload: WorkloadSpec,
        cores: Cores | None = None,
    ) -> None:
        self._engine = engine
        self._endpoint = endpoint
        self._workload = workload
        self.placing = cores or share_all()

    async def __aenter__(self) -> LoadClient:
        """EngineError when the process cannot be started, and for an address or a header that it cannot use."""
        hello = self._hello()
        self.worker = Worker(self.placing)
        try:
            await self.worker.ready()
            await self.worker.tell(hello)
        except BaseException as error:
            await self.worker.stop()
            if isinstance(error, WorkerLostError):
                raise EngineError(str(error)) from error
            raise
        return self

    def _hello(self) -> dict[str, object]:
        where, dialect = urlsplit(self._endpoint.base_url), self._engine.dialect
        if where.scheme != "http":
            raise EngineError(f"{self._endpoint.base_url}: the load client speaks http only")
        if not all(text.isprintable() for item in self._endpoint.headers.items() for text in item):
            raise EngineError("a header of the load client's requests is no single line")
        return {
            "host": where.hostname,
            "port": where.port or 80,
            "path": where.path + dialect.path,
            "headers": dict(self._endpoint.headers),
            "reader": dialect.reader,
            "timeout_s": self._workload.request_timeout_s,
        }

    async def __aexit__(self, *_: object) -> None:
        await self.worker.stop()

    async def run(
        self,
        prompts: Sequence[Prompt],
        concurrency: int,
        max_tokens: int,
        arrivals: Sequence[Arrival] = (),
        heard: Callable[[int], None] = lambda _: None,
    ) -> LoadResult:
        """Answer all prompts, each once: `concurrency` at a time, or with `arrivals` each when it is due.

        `heard` is told once a second how many were answered. A child that dies or falls silent fails all answers.
        EngineError for a prompt that is no text.
        """
        caps = [arrival.max_tokens for arrival in arrivals] or [max_tokens] * len(prompts)
        calls = [await self._call(prompt, cap) for prompt, cap in zip(prompts, caps, strict=True)]
        job = {
            "bodies": [call.body for call in calls],
            "offsets": [arrival.at for arrival in arrivals] or None,
            "slots": concurrency,
        }
        try:
            await self.worker.tell(job)
            while "streams" not in (message := await self.worker.hear()):
                heard(message["answered"])
        except WorkerLostError as error:
            return LoadResult([Answer(prompt, math.nan, error=str(error)) for prompt in prompts], str(error))
        for told in message["streams"]:
            told["prompt_token_ids"] = told["prompt_token_ids"] or list(calls[told["index"]].prompt_token_ids)
        answers = [Answer.received(prompts[told["index"]], told, self._engine) for told in message["streams"]]
        return LoadResult(answers, message["excess"], message["cpu_s"])

    async def _call(self, prompt: Prompt, max_tokens: int) -> Call:
        workload = self._workload
        body: dict[str, object] = {
            "model": self._endpoint.model,
            "messages": [{"role": role, "content": content} for role, content in prompt.messages],
            "max_tokens": max_tokens,
            "temperature": workload.temperature,
            "top_p": workload.top_p,
            "seed": workload.seed,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if workload.top_k:
            body["top_k"] = workload.top_k
        return await self._engine.call(self._endpoint, body | dict(self._engine.request_fields()))
