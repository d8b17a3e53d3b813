"""What the server does with a request: checks it against the model, decodes it, answers."""

from __future__ import annotations

import asyncio
import copy
import secrets
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from engines.reference.decoding.request import DraftTree, GenerationRequest, Method, SamplingParams
from engines.reference.serving.generation import Delta, deltas
from engines.reference.serving.loop import DecodeLoop, DecodingEngine, LoopState
from engines.reference.serving.metrics import Metrics, Snapshot
from engines.reference.serving.options import Options
from engines.reference.serving.outcomes import DeadError, Gone, LoadingError, LoopError
from engines.reference.serving.replies import (
    DONE,
    ChatShape,
    CompletionShape,
    Reply,
    Shape,
    counters,
    error_body,
    event,
)
from engines.reference.serving.schemas import ChatBody, CompletionBody, ConfigureBody, DraftTreesBody, Generation
from engines.reference.serving.served import ServedModel, identity
from engines.reference.serving.text import TextStream, Tokenizer
from engines.reference.serving.wire import ApiError, Attended, EventStream, error_kind

_COMPLETION_TOKENS = 16
"""OpenAI's default for /v1/completions."""


class Service:
    """The operations behind the HTTP routes. Raises ApiError and LoopError for what the client gets to see."""

    def __init__(self, options: Options, loop: DecodeLoop) -> None:
        self._options = options
        self._loop = loop
        self._method = options.method
        self._metrics = Metrics()

    @property
    def state(self) -> LoopState:
        return self._loop.state

    def model_list(self) -> dict[str, Any]:
        model = {"id": self._options.model_name, "object": "model", "created": 0, "owned_by": "orchestrate"}
        return {"object": "list", "data": [model | {"max_model_len": self._options.max_context}]}

    async def complete(self, body: CompletionBody, request: Request) -> Response:
        model = self._model(body)
        ids = body.prompt
        if isinstance(ids, str):
            ids = model.tokenizer.encode(ids, add_special_tokens=True)
        limit = self._limit(ids, body.max_tokens or _COMPLETION_TOKENS, model)
        return await self._answer(body, CompletionShape(), ids, limit, body.logprobs, request)

    async def chat(self, body: ChatBody, request: Request) -> Response:
        model = self._model(body)
        if model.chat is None:
            raise ApiError(400, "this model has no chat template; use /v1/completions")
        try:
            text = model.chat.render([message.plain() for message in body.messages], body.chat_template_kwargs)
        except ValueError as error:
            raise ApiError(400, str(error), param="messages") from error
        ids = model.tokenizer.encode(text, add_special_tokens=False)
        limit = self._limit(ids, body.limit or max(self._options.max_context - len(ids), 1), model)
        return await self._answer(body, ChatShape(), ids, limit, None, request)

    async def configure(self, body: ConfigureBody) -> dict[str, Any]:
        try:
            method = Method(body.method, body.budget, body.chain)
        except ValueError as error:
            raise ApiError(400, str(error)) from error
        await self._loop.call_idle(lambda engine: engine.set_method(method))
        self._method = method
        return {"method": method.name, "budget": method.budget, "chain": method.chain}

    async def draft_trees(self, body: DraftTreesBody) -> dict[str, Any]:
        """What the drafter proposes and the target accepts in the first steps after a prompt, greedily."""
        self._loop.check_ready()
        model = self._loop.model
        self._limit(body.prompt, 1, model)
        params = SamplingParams(max_tokens=self._options.max_context - len(body.prompt))
        request = GenerationRequest(f"trees-{uuid.uuid4().hex}", tuple(body.prompt), params)
        trees = await self._loop.call_idle(lambda engine: engine.record(request, body.steps))
        return {"trees": [_tree(tree, model.tokenizer) for tree in trees]}

    async def info(self) -> dict[str, Any]:
        """Identity and counters, the counters of one moment between two steps."""
        snapshot = await self._loop.call(_snapshot)
        running = min(self._loop.running, self._options.max_batch)
        return {
            **identity(self._options, self._loop.model, self._method),
            "model": self._options.model_name,
            "counters": counters(snapshot.stats),
            "stages": _stages(snapshot),
            "running": running,
            "waiting": self._loop.running - running,
        }

    async def metrics(self) -> bytes:
        try:
            snapshot = await self._loop.call(_snapshot)
        except (LoadingError, DeadError):
            snapshot = None
        return self._metrics.text(snapshot, self._loop.running)

    def _model(self, body: Generation) -> ServedModel:
        self._loop.check_ready()
        if body.model is not None and body.model != self._options.model_name:
            message = f"the model {body.model!r} does not exist; this server has {self._options.model_name!r}"
            raise ApiError(404, message, param="model", code="model_not_found")
        return self._loop.model

    def _limit(self, ids: list[int], max_tokens: int, model: ServedModel) -> int:
        if not ids:
            raise ApiError(400, "the prompt has no tokens", param="prompt")
        if max(ids) >= model.vocab_size:
            raise ApiError(400, f"token id {max(ids)} is outside the vocabulary of {model.vocab_size}", param="prompt")
        if len(ids) + max_tokens > self._options.max_context:
            message = (
                f"this server's context is {self._options.max_context} tokens; the prompt has {len(ids)} "
                f"and {max_tokens} more are asked for"
            )
            raise ApiError(400, message, param="max_tokens", code="context_length_exceeded")
        return max_tokens

    async def _answer(
        self, body: Generation, shape: Shape, ids: list[int], max_tokens: int, logprobs: int | None, request: Request
    ) -> Response:
        model = self._loop.model
        params = body.sampling(max_tokens, secrets.randbits(31), logprobs)
        request_id = f"{shape.prefix}-{uuid.uuid4().hex}"
        ticket = self._loop.submit(GenerationRequest(request_id, tuple(ids), params))
        self._metrics.prompt_tokens.inc(len(ids))
        reply = Reply(
            shape=shape,
            request_id=request_id,
            model=self._options.model_name,
            created=int(time.time()),
            prompt_ids=ids,
            seed=params.seed,
            with_token_ids=body.return_token_ids,
            logprobs=logprobs,
            tokenizer=model.tokenizer,
        )
        parts = self._counted(deltas(ticket, TextStream(model.tokenizer, body.stop_strings)))
        with Attended(request, ticket.cancel) as attended:
            if not body.stream:
                return JSONResponse(reply.whole([delta async for delta in parts]))
            # A request that the engine refuses still gets its own status: nothing is sent before the first tokens.
            first = reply.chunk(await anext(parts))
            return EventStream(_events(first, reply, parts, body.include_usage), attended.hand_over())

    async def _counted(self, parts: AsyncIterator[Delta]) -> AsyncIterator[Delta]:
        outcome = "error"
        try:
            async for delta in parts:
                self._metrics.output_tokens.inc(len(delta.token_ids))
                outcome = delta.finish_reason or outcome
                yield delta
        except (Gone, asyncio.CancelledError):
            outcome = "cancelled"
            raise
        finally:
            self._metrics.requests.labels(outcome).inc()


async def _events(first: bytes, reply: Reply, parts: AsyncIterator[Delta], usage: bool) -> AsyncIterator[bytes]:
    yield first
    try:
        async for delta in parts:
            yield reply.chunk(delta)
    except Gone:
        return
    except LoopError as error:
        yield event(error_body(str(error), error_kind(500))) + DONE
        return
    yield (reply.usage_chunk() if usage else b"") + DONE


def _snapshot(engine: DecodingEngine) -> Snapshot:
    # Copies: the engine goes on counting in its own thread.
    return Snapshot(copy.deepcopy(engine.stats()), replace(engine.stage_times()))


def _tree(tree: DraftTree, tokenizer: Tokenizer) -> dict[str, Any]:
    rows = zip(tree.tokens, tree.parents, tree.depths, tree.scores, strict=True)
    nodes = [
        {"token_id": token, "text": tokenizer.token_text(token), "parent": parent, "depth": depth, "log_prob": score}
        for token, parent, depth, score in rows
    ]
    bonus = {"bonus_id": tree.bonus, "bonus_text": tokenizer.token_text(tree.bonus)}
    return {"nodes": nodes, "accepted": tree.accepted} | bonus


def _stages(snapshot: Snapshot) -> dict[str, float]:
    stages = snapshot.stages
    seconds = {name: getattr(stages, name) for name in ("draft", "build", "verify", "commit", "host", "prefill")}
    return {"steps": stages.decode_steps} | seconds
