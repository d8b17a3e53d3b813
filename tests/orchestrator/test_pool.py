"""What the driver hears of a slot whose actor Ray loses, in every way that Ray has of saying so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import ray

from engines.base import EngineError
from orchestrator import pool
from orchestrator.cluster import Choice
from orchestrator.errors import InputError
from orchestrator.pool import SlotHandle, SlotLostError, open_slots
from orchestrator.records import TrialState
from tests.orchestrator.acting import ANY_LOAD, CHOICE, MATCH, arm, deployment, trial

LONG = "Task was killed due to the node running low on memory.\nMemory on the node was 15.1GB / 15.6GB\n"
LOSSES = [
    ray.exceptions.OutOfMemoryError(LONG),
    ray.exceptions.RaySystemError("the object store\nis gone"),
    ray.exceptions.NodeDiedError("the node died\nat last"),
    ray.exceptions.ActorUnschedulableError("no node has it\nany more"),
]
NO_GPU = "the slot was given 0 GPUs, the profile says 1"


class Method:
    """An actor's method: `answer` gives its result or raises."""

    def __init__(self, answer: Callable[[], Any]) -> None:
        self._answer = answer

    async def remote(self, *_: object) -> Any:
        return self._answer()


class Actor:
    def __init__(self, **answers: Callable[[], Any]) -> None:
        for name, answer in answers.items():
            setattr(self, name, Method(answer))

    def remote(self, *_: object) -> Actor:
        return self


def raising(error: Exception) -> Callable[[], Any]:
    def answer() -> Any:
        raise error

    return answer


@pytest.fixture
def actors(monkeypatch: pytest.MonkeyPatch) -> list[Actor]:
    """The actors that will be created, in turn."""
    coming: list[Actor] = []

    class Options:
        def __init__(self, _: type) -> None: ...

        def options(self, **_: object) -> Actor:
            return coming.pop(0)

    monkeypatch.setattr(ray, "remote", Options)
    monkeypatch.setattr(ray, "kill", lambda _: None)
    monkeypatch.setattr(pool, "GRACE_S", 0.0)
    return coming


def actor(**answers: Callable[[], Any]) -> Actor:
    return Actor(**({"open": lambda: "slot-0", "close": lambda: None} | answers))


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
async def test_whatever_takes_the_actor_costs_one_trial(actors: list[Actor], loss: Exception) -> None:
    actors += [actor(run=raising(loss)), actor(run=lambda: "measured")]
    slot = SlotHandle(0, CHOICE, ANY_LOAD)
    await slot.open()
    record = (await slot.run(trial())).record
    assert record.state is TrialState.FAILED
    assert record.reason.startswith("the slot's actor died during the trial: ")
    assert "\n" not in record.reason
    again: Any = await slot.run(trial())
    assert again == "measured"


async def test_an_actor_that_dies_while_its_engines_start_is_told_of_and_replaced(actors: list[Actor]) -> None:
    actors += [actor(prepare=raising(LOSSES[0])), actor(prepare=raising(LOSSES[1])), actor(open=raising(LOSSES[0]))]
    slot = SlotHandle(0, CHOICE, ANY_LOAD)
    await slot.open()
    (line,) = await slot.prepare([])
    assert line.startswith("the slot's actor died while it started its engines: Task was killed")
    assert "\n" not in line
    with pytest.raises(SlotLostError, match="the object store"):
        await slot.prepare([])


@pytest.mark.parametrize("second", [ray.exceptions.RaySystemError("no\nplace"), EngineError(NO_GPU)])
async def test_a_slot_that_cannot_be_opened_again_is_lost(actors: list[Actor], second: Exception) -> None:
    actors += [actor(run=raising(LOSSES[0])), actor(open=raising(second))]
    slot = SlotHandle(0, CHOICE, ANY_LOAD)
    await slot.open()
    with pytest.raises(SlotLostError, match="running low on memory") as caught:
        await slot.run(trial())
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith((NO_GPU, "the slot's actor cannot start: System error: no"))


async def test_a_slot_whose_resources_do_not_come_back_is_lost(
    actors: list[Actor], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Never:
        async def remote(self) -> None:
            await asyncio.Event().wait()

    waiting = actor()
    waiting.open = Never()  # type: ignore[attr-defined]
    actors += [actor(run=raising(LOSSES[0])), waiting]
    monkeypatch.setattr(pool, "_REOPEN_S", 0.01)
    slot = SlotHandle(0, CHOICE, ANY_LOAD)
    await slot.open()
    with pytest.raises(SlotLostError, match=r"its resources did not come back within 0\.01 s"):
        await slot.run(trial())


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
async def test_a_ranking_that_ray_loses_is_an_engine_error(actors: list[Actor], loss: Exception) -> None:
    actors.append(actor(rankings=raising(loss)))
    slot = SlotHandle(0, CHOICE, ANY_LOAD)
    await slot.open()
    with pytest.raises(EngineError, match="died while it was asked") as caught:
        await slot.rankings(arm(), deployment(), [[1]])
    assert "\n" not in str(caught.value)


async def test_a_slot_that_cannot_start_is_left_out_and_the_others_are_used(actors: list[Actor]) -> None:
    heard: list[str] = []
    actors += [actor(open=raising(LOSSES[0])), actor(open=lambda: "slot-1 with a card")]
    async with open_slots(Choice("local", 2, MATCH, ""), 2, ANY_LOAD, heard.append) as slots:
        assert [slot.name for slot in slots] == ["slot-1 with a card"]
    reason = "slot-0: the slot's actor cannot start: Task was killed due to the node running low on memory"
    assert heard == [f"left out: {reason}"]
    actors.append(actor(open=raising(LOSSES[0])))
    with pytest.raises(InputError) as caught:
        async with open_slots(CHOICE, 1, ANY_LOAD, heard.append):
            pass
    assert str(caught.value) == f"profile local: no slot can be used: {reason}"


async def test_a_fault_of_ours_in_the_actor_keeps_its_traceback(actors: list[Actor]) -> None:
    fault = ray.exceptions.RayTaskError("run", "Traceback ...\nTypeError: ours", TypeError("ours"))
    actors.append(actor(run=raising(fault.as_instanceof_cause())))
    slot = SlotHandle(0, CHOICE, ANY_LOAD)
    await slot.open()
    with pytest.raises(TypeError, match="ours"):
        await slot.run(trial())
