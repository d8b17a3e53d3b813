"""Engines that stay up side by side, with the fake engine: `ready_after_s` makes commands differ."""

import os
import re
import signal
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from engines.base import EngineError
from orchestrator.plan import Trial
from orchestrator.process import EngineProcess
from orchestrator.residents import Residents
from tests.orchestrator.acting import deployment, trial
from tests.orchestrator.processes import VARIABLE, eventually, marked


@pytest.fixture
async def two(mark: str) -> AsyncIterator[Residents]:
    residents = Residents(2, 0)
    yield residents
    await residents.stop_all()


def a_trial(mark: str, number: int, **options: object) -> Trial:
    return trial({"ready_after_s": number / 100, **options}, deployed=deployment(environment={VARIABLE: mark}))


async def up(residents: Residents, subject: Trial) -> EngineProcess:
    return (await residents.bring_up(subject.arm, subject.deployment))[0]


async def test_arms_alternate_without_a_start(two: Residents, mark: str) -> None:
    first, second = await up(two, a_trial(mark, 1)), await up(two, a_trial(mark, 2))
    assert first.pid != second.pid
    assert await up(two, a_trial(mark, 1)) is first
    assert await up(two, a_trial(mark, 2)) is second
    assert two.current is second


async def test_the_one_used_longest_ago_makes_room(two: Residents, mark: str) -> None:
    first, second = await up(two, a_trial(mark, 1)), await up(two, a_trial(mark, 2))
    await up(two, a_trial(mark, 1))
    await up(two, a_trial(mark, 3))
    assert (first.exit_code(), second.exit_code() is None) == (None, False)


async def test_a_dead_one_is_started_again(two: Residents, mark: str) -> None:
    first = await up(two, a_trial(mark, 1))
    os.kill(first.pid, signal.SIGKILL)
    assert eventually(lambda: first.exit_code() is not None)
    again = await up(two, a_trial(mark, 1))
    assert again is not first
    assert again.exit_code() is None


async def test_they_start_side_by_side_and_no_more_than_fit(two: Residents, mark: str) -> None:
    trials = [a_trial(mark, number) for number in (1, 2, 3)]
    assert await two.bring_up_together([(subject.arm, subject.deployment) for subject in trials]) == []
    held = [await two.bring_up(subject.arm, subject.deployment) for subject in trials[:2]]
    assert all(engine.log.size == position > 0 for engine, position in held), "both ran before they were asked for"
    assert len(marked(mark)) == len(marked_of_one(mark)) * 2


def marked_of_one(mark: str) -> list[str]:
    lines = sorted(marked(mark).values())
    return [line for line in lines if "0.01" in line]


async def test_one_whose_program_is_not_there_leaves_the_others_up(
    two: Residents, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = a_trial(mark, 1), a_trial(mark, 2)
    monkeypatch.setenv("ORCHESTRATE_CONTAINERS", "/no/such/tool")
    nowhere = replace(bad.deployment, image="sha256:0")
    (line,) = await two.bring_up_together([(good.arm, good.deployment), (bad.arm, nowhere)])
    assert line.startswith(f"{bad.arm.name} did not get ready beside the others: ")
    assert "/no/such/tool" in line
    assert (await two.bring_up(good.arm, good.deployment))[1] > 0


async def test_one_that_cannot_start_leaves_the_others_up_and_is_told_of(two: Residents, mark: str) -> None:
    good, bad = a_trial(mark, 1), a_trial(mark, 2, fail="start")
    (line,) = await two.bring_up_together([(good.arm, good.deployment), (bad.arm, bad.deployment)])
    assert re.match(f"{re.escape(bad.arm.name)} did not get ready beside the others: .*ended with exit code 1", line)
    assert (await two.bring_up(good.arm, good.deployment))[1] > 0
    with pytest.raises(EngineError, match="ended with exit code 1"):
        await up(two, bad)
