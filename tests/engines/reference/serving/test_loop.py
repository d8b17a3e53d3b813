"""The hand-over between the decode thread and asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from engines.reference.decoding.request import GenerationRequest, Method, SamplingParams
from engines.reference.serving.loop import DecodeLoop, LoopState
from engines.reference.serving.outcomes import BusyError, DeadError, FullError, Gone, LoadingError, RefusedError
from engines.reference.serving.served import Loaded
from engines.reference.serving.ticket import Ticket
from tests.engines.reference.scripted import EOS, ScriptedEngine, scripted_model


@asynccontextmanager
async def running(engine: ScriptedEngine, limit: int = 8) -> AsyncIterator[DecodeLoop]:
    ready = asyncio.Event()
    loop = DecodeLoop(lambda: Loaded(engine, scripted_model()), limit, ready.set, lambda before, error: None)
    loop.start()
    await ready.wait()
    yield loop
    assert loop.stop(timeout=5)


def request(name: str, prompt: str = "x") -> GenerationRequest:
    return GenerationRequest(name, tuple(prompt.encode()), SamplingParams(max_tokens=100))


async def tokens(ticket: Ticket) -> list[int]:
    out: list[int] = []
    while True:
        emission = await ticket.next()
        out += emission.token_ids
        if emission.finish_reason:
            return out


async def test_tokens_arrive_in_order_for_every_request() -> None:
    async with running(ScriptedEngine(answer="abcdefgh")) as loop:
        tickets = [loop.submit(request(str(n))) for n in range(5)]
        assert loop.running == 5
        answers = await asyncio.gather(*map(tokens, tickets))
        assert loop.running == 0
    assert answers == [[*b"abcdefgh", EOS]] * 5


async def test_an_idle_loop_runs_no_step() -> None:
    engine = ScriptedEngine()
    async with running(engine) as loop:
        await tokens(loop.submit(request("a")))
        before = engine.steps_run
        await asyncio.sleep(0.1)
        assert engine.steps_run == before
        await tokens(loop.submit(request("b")))
    assert engine.steps_run > before


async def test_a_refused_request_fails_alone() -> None:
    async with running(ScriptedEngine(answer="ab", refuse=3)) as loop:
        bad, good = loop.submit(request("bad", "xyz")), loop.submit(request("good"))
        with pytest.raises(RefusedError, match="scripted refusal"):
            await bad.next()
        assert await tokens(good) == [*b"ab", EOS]
        assert loop.running == 0


async def test_cancelling_frees_the_engine_and_ends_the_ticket() -> None:
    engine = ScriptedEngine(answer="x" * 100, chunk=1, step_s=0.005)
    async with running(engine, limit=1) as loop:
        ticket = loop.submit(request("a"))
        await ticket.next()
        with pytest.raises(FullError):
            loop.submit(request("b"))
        ticket.cancel()
        ticket.cancel()
        other = loop.submit(request("b"))
        with pytest.raises(Gone):
            await tokens(ticket)
        await other.next()
        other.cancel()
        assert await loop.call(lambda engine: engine.has_work()) is False
    assert engine.cancelled == ["a", "b"]


async def test_a_call_runs_in_the_decode_thread_between_steps() -> None:
    async with running(ScriptedEngine(answer="x" * 50, chunk=1, step_s=0.002)) as loop:
        ticket = loop.submit(request("a"))
        name = await loop.call(lambda engine: threading.current_thread().name)
        assert name == "decode"
        with pytest.raises(RefusedError, match="no"):
            await loop.call(lambda engine: int("no"))
        assert len(await tokens(ticket)) == 51


async def test_the_method_changes_only_while_idle() -> None:
    engine = ScriptedEngine(answer="x" * 60, chunk=1, step_s=0.002)
    async with running(engine) as loop:
        ticket = loop.submit(request("a"))
        with pytest.raises(BusyError):
            await loop.call_idle(lambda engine: engine.set_method(Method("ddtree", 4)))
        ticket.cancel()
        await loop.call_idle(lambda engine: engine.set_method(Method("ddtree", 4)))
        assert engine.method == Method("ddtree", 4)
        with pytest.raises(RefusedError, match="drafter"):
            await loop.call_idle(lambda engine: engine.set_method(Method("dflash")))


async def test_nothing_is_taken_while_loading_and_after_a_failed_load() -> None:
    gate, ended = threading.Event(), asyncio.Event()
    ends: list[tuple[LoopState, Exception]] = []

    def load() -> Loaded:
        gate.wait(5)
        raise ValueError("no such model")

    def on_end(before: LoopState, error: Exception) -> None:
        ends.append((before, error))
        ended.set()

    loop = DecodeLoop(load, 8, lambda: None, on_end)
    loop.start()
    with pytest.raises(LoadingError):
        loop.submit(request("a"))
    with pytest.raises(LoadingError):
        await loop.call(lambda engine: None)
    gate.set()
    await ended.wait()
    assert [(before, str(error)) for before, error in ends] == [(LoopState.LOADING, "no such model")]
    with pytest.raises(DeadError):
        loop.submit(request("a"))
    assert loop.stop(timeout=5)


@pytest.mark.parametrize("death", ["step", "command"])
async def test_a_dead_engine_fails_everything_that_waits(death: str) -> None:
    engine = ScriptedEngine(answer="x" * 90, chunk=1, step_s=0.005, die_at_step=5 if death == "step" else -1)
    async with running(engine) as loop:
        tickets = [loop.submit(request(str(n))) for n in range(3)]
        if death == "command":
            calls = [loop.call(lambda engine: [][0]), loop.call(lambda engine: engine.has_work())]
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [DeadError, DeadError]
        for ticket in tickets:
            with pytest.raises(DeadError):
                await tokens(ticket)
        assert (loop.state, loop.running) == (LoopState.FAILED, 0)
        with pytest.raises(DeadError):
            await loop.call(lambda engine: None)
