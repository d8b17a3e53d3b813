"""A client that waits for the server before it sends measures the server only when it is well (vllm#54101)."""

import asyncio
import os
import signal
from collections.abc import Sequence
from dataclasses import replace

from engines.base import SpecCounters
from engines.fake.adapter import FakeEngine
from orchestrator.answer import Answer
from orchestrator.load.arrivals import Arrival
from orchestrator.load.client import LoadClient, LoadResult
from orchestrator.metrics import measure
from orchestrator.prompts import Prompt
from orchestrator.records import request_frame
from orchestrator.spec import WorkloadSpec
from orchestrator.validity import Limits, check, disturbance
from tests.orchestrator.load.raw import RawServer, token, usage, whole
from tests.orchestrator.test_validity import QUIET

ANSWER = whole(token(1), token(2, finish="stop"), usage(2))
PROMPTS = [Prompt(f"p-{number}", "chat", (("user", f"Question {number}"),)) for number in range(20)]
GAP_S, STALL_S = 0.05, 0.6
LATE_S = 0.15


class Stalling(RawServer):
    """Answers at once, but for one pause in which it answers nobody."""

    def __init__(self) -> None:
        super().__init__([ANSWER])
        self._well = asyncio.Event()
        self._well.set()

    async def respond(self, writer: asyncio.StreamWriter) -> None:
        if self.requests == 4:
            self._well.clear()
            asyncio.get_running_loop().call_later(STALL_S, self._well.set)
        await self._well.wait()
        await super().respond(writer)


async def loaded(arrivals: Sequence[Arrival], stop_client: bool = False) -> LoadResult:
    async with Stalling().running() as endpoint, LoadClient(FakeEngine(), endpoint, WorkloadSpec()) as client:
        if stop_client:
            loop = asyncio.get_running_loop()
            loop.call_later(0.2, os.kill, client.worker.pid, signal.SIGSTOP)
            loop.call_later(0.8, os.kill, client.worker.pid, signal.SIGCONT)
        return await client.run(PROMPTS, 1, 9, arrivals)


def late(waits: Sequence[float]) -> int:
    return sum(wait > LATE_S for wait in waits)


def ttft(answers: Sequence[Answer]) -> list[float]:
    """The product's own."""
    return list(measure(request_frame([answer.row(0.0) for answer in answers]))["ttft"])


SCHEDULE = [Arrival(GAP_S * number, 9) for number in range(len(PROMPTS))]


async def test_all_who_came_in_a_stall_waited_not_only_the_one_who_met_it() -> None:
    scheduled = await loaded(SCHEDULE)
    assert scheduled.failure == ""
    assert late(ttft(scheduled.answers)) >= 5
    omitting = await loaded(())  # the pitfall: nobody comes while the server is silent
    assert late(ttft(omitting.answers)) == 1


async def test_a_queue_inside_the_client_is_part_of_the_time_and_spoils_the_trial() -> None:
    answers = (await loaded(SCHEDULE, stop_client=True)).answers
    hidden = [answer.first - answer.sent for answer in answers]  # the pitfall: from when the client got round to it
    assert late(ttft(answers)) > late(hidden)
    measured = [replace(answer, counters=None) for answer in answers]
    steps = SpecCounters(verify_steps=len(answers), emitted=len(answers))
    assert disturbance(measured, QUIET, Limits()).startswith("the load client sent late: 99th percentile ")
    on_time = [replace(answer, sent=answer.scheduled) for answer in measured]
    assert check(on_time, 1, steps) == disturbance(on_time, QUIET, Limits()) == ""
