"""The load client: a closed loop of streaming chat completions, every prompt exactly once.

Each of `concurrency` workers takes the next prompt when its last answer is complete. A request is scheduled when its
worker is free, and sent when its headers have left, so that a slow client shows as the difference (measurement rule:
latency counts from the schedule). Tokens are the server's count, never the client's.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import aiohttp

from engines.base import Endpoint, Engine
from engines.messages import error_message, one_line
from orchestrator.answer import Answer, BadAnswerError
from orchestrator.prompts import Prompt
from orchestrator.spec import WorkloadSpec
from orchestrator.sse import EventParser

NOT_SENT = "not sent: an earlier request failed"


@dataclass(frozen=True)
class LoadResult:
    """All answers in the order sent."""

    answers: list[Answer]

    @property
    def failure(self) -> str:
        """The first failed request in one line; empty when all succeeded."""
        failed = [answer for answer in self.answers if answer.error and answer.error != NOT_SENT]
        return f"request {failed[0].prompt.prompt_id}: {failed[0].error}" if failed else ""


class LoadClient:
    """Sends requests to one server over one pool of connections. An async context manager."""

    def __init__(self, engine: Engine, endpoint: Endpoint, workload: WorkloadSpec) -> None:
        self._engine = engine
        self._endpoint = endpoint
        self._workload = workload
        trace = aiohttp.TraceConfig()
        trace.on_request_headers_sent.append(_note_sent)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=workload.request_timeout_s),
            trace_configs=[trace],
        )

    async def __aenter__(self) -> LoadClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def run(self, prompts: Sequence[Prompt], concurrency: int, max_tokens: int) -> LoadResult:
        """Answer all prompts. After a failed request no further one is sent: the trial cannot count any more."""
        waiting = deque(prompts)
        answers: list[Answer] = []

        async def work() -> None:
            while waiting and not any(answer.error for answer in answers):
                answer = Answer(waiting.popleft(), time.perf_counter())
                answers.append(answer)
                await self._ask(answer, max_tokens)

        await asyncio.gather(*(work() for _ in range(concurrency)))
        answers += [Answer(prompt, math.nan, error=NOT_SENT) for prompt in waiting]
        return LoadResult(answers)

    async def _ask(self, answer: Answer, max_tokens: int) -> None:
        url = f"{self._endpoint.base_url}/v1/chat/completions"
        body = self._body(answer.prompt, max_tokens)
        try:
            async with self._session.post(url, json=body, trace_request_ctx=answer) as response:
                if response.status != 200:
                    raise BadAnswerError(f"HTTP {response.status}: {error_message(await response.text())}")
                await self._read(answer, response)
        except BadAnswerError as error:
            answer.fail(str(error))
        except TimeoutError:
            answer.fail(f"no complete answer within {self._workload.request_timeout_s:g} s")
        except (aiohttp.ClientError, OSError) as error:
            answer.fail(f"connection lost: {one_line(str(error) or type(error).__name__)}")

    def _body(self, prompt: Prompt, max_tokens: int) -> dict[str, object]:
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
        return body | dict(self._engine.request_fields())

    async def _read(self, answer: Answer, response: aiohttp.ClientResponse) -> None:
        parser, done = EventParser(), False
        async for received in response.content.iter_any():
            at = time.perf_counter()
            for event in parser.feed(received):
                done = done or event == "[DONE]"
                if not done:
                    answer.take(event, at)
        if not done:
            raise BadAnswerError("the stream ended before [DONE]")
        answer.finish(self._engine)


async def _note_sent(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
    context.trace_request_ctx.sent = time.perf_counter()
