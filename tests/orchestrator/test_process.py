import os
import signal
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from engines.base import Arm, EngineError
from engines.fake.adapter import FakeEngine
from orchestrator import engine_log, process
from orchestrator.engine_log import telling_line
from orchestrator.process import EngineProcess
from tests.orchestrator.acting import arm, deployment
from tests.orchestrator.processes import VARIABLE, eventually, marked

ENGINE = FakeEngine()


async def started(subject: Arm, mark: str, **changes: Any) -> EngineProcess:
    deployed = deployment(environment={VARIABLE: mark}, **changes)
    running = process.spawn(ENGINE, subject, deployed)
    try:
        await process.until_ready(running, deployed.ready_timeout_s)
    except BaseException:
        await running.stop()
        raise
    return running


@pytest.fixture
async def running(mark: str) -> AsyncIterator[EngineProcess]:
    engine = await started(arm(), mark)
    yield engine
    await engine.stop()


async def test_a_started_engine_answers_and_stops_without_a_trace(running: EngineProcess, mark: str) -> None:
    assert (await ENGINE.identify(running.endpoint)).engine == "fake"
    assert running.obituary() == ""
    assert b"simulated" in running.log.read()
    await running.stop()
    assert marked(mark) == {}
    assert not await ENGINE.healthy(running.endpoint)


async def test_an_engine_that_cannot_start_is_quoted(mark: str) -> None:
    with pytest.raises(EngineError) as caught:
        await started(arm(fail="start"), mark)
    assert str(caught.value) == (
        "engine fake ended with exit code 1: engines.fake.server (simulated): error: scripted failure at start"
    )


async def test_an_interpreter_that_is_not_there_is_one_line(mark: str) -> None:
    with pytest.raises(EngineError, match=r"exit code 127: /no/python: cannot be started: No such file or directory"):
        await started(arm(), mark, interpreter="/no/python")


async def test_an_engine_that_is_never_ready_runs_into_its_timeout(mark: str) -> None:
    with pytest.raises(EngineError, match=r"engine fake was not ready after 1\.5 s: engines\.fake\.server"):
        await started(arm(fail="never_ready"), mark, ready_timeout_s=1.5)


async def test_a_killed_engine_has_an_obituary(running: EngineProcess, mark: str) -> None:
    server = next(pid for pid, line in marked(mark).items() if "engines.fake.server" in line and "leash" not in line)
    os.kill(server, signal.SIGKILL)
    assert await running.ended(5)
    assert running.obituary().startswith("engine fake ended with exit code 137: ")


async def test_waiting_for_an_end_that_does_not_come(running: EngineProcess) -> None:
    began = time.monotonic()
    assert not await running.ended(0.1)
    assert time.monotonic() - began < 5


def test_arms_share_a_process_when_command_and_environment_are_equal() -> None:
    deployed = deployment()
    assert process.key(ENGINE, arm(step_ms=1.0), deployed) == process.key(ENGINE, arm(step_ms=2.0), deployed)
    assert process.key(ENGINE, arm(), deployed) != process.key(ENGINE, arm(ready_after_s=0.1), deployed)
    assert process.key(ENGINE, arm(), deployed) != process.key(ENGINE, arm(), deployment(environment={"A": "1"}))


def test_the_engines_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_JOB_ID", "7")
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    variables = process.environment({"B": "adapter"}, deployment(threads=3, environment={"A": "profile", "B": "x"}))
    assert "RAY_JOB_ID" not in variables
    assert (variables["OMP_NUM_THREADS"], variables["A"], variables["B"]) == ("3", "profile", "adapter")


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("loading\nValueError: no such file\n  at exit\nbye\n", "ValueError: no such file"),
        ("one\ntwo\n\n", "two"),
        ("", ""),
        ("CUDA out of memory. torch.OutOfMemoryError\nlast", "CUDA out of memory. torch.OutOfMemoryError"),
        ("x" * 500, "x" * 300),
        ("ValueError: the cause\nERROR worker died, executor: error\n", "ValueError: the cause"),
        (
            "a.ValidationError: 1 error\n  Value error, too long\n  see https://errors/value_error",
            "Value error, too long",
        ),
        (
            "ValueError: the cause\n    raise X(\nRuntimeError: it failed. See root cause above.",
            "ValueError: the cause",
        ),
    ],
)
def test_the_telling_line_of_a_log(log: str, line: str) -> None:
    assert telling_line(log) == line


async def test_the_log_is_read_from_a_mark_on_and_limited(running: EngineProcess) -> None:
    mark = running.log.size
    os.write(running.log.fileno(), b"later\n")
    assert eventually(lambda: running.log.size > mark)
    assert running.log.read(mark).endswith(b"later\n")
    os.write(running.log.fileno(), b"y" * (engine_log.LOG_LIMIT + 10))
    assert len(running.log.read()) == engine_log.LOG_LIMIT
