"""An engine's server as a child process on a leash: start, wait until it takes requests, stop, read its log."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engines import containers
from engines.base import Arm, Deployment, Endpoint, Engine, EngineError
from orchestrator import leash
from orchestrator.engine_log import EngineLog
from orchestrator.load.cores import Cores, choose, pinned, share_all
from orchestrator.ports import free_port

_POLL_S = 0.05

Key = tuple[tuple[str, ...], tuple[tuple[str, str], ...]]


@dataclass
class EngineProcess:
    """A started server. `key` tells whether another arm could use the same process.

    `container`: the name of the one that it runs in; None without an image. `first_process` is known once it is ready.
    """

    engine: Engine
    endpoint: Endpoint
    key: Key
    log: EngineLog
    _leash: subprocess.Popen[bytes]
    cores: Cores
    container: str | None = None
    first_process: int | None = None

    @property
    def pid(self) -> int:
        """The process with everything of the engine below it: the outer leash, or the container's first one."""
        return self.first_process or self._leash.pid

    def exit_code(self) -> int | None:
        """The engine's exit code, 128 + n for signal n; None while it runs."""
        code = self._leash.poll()
        return code if code is None or code >= 0 else 128 - code

    def obituary(self) -> str:
        """One line on why the engine is gone; empty while it runs."""
        code = self.exit_code()
        if code is None:
            return ""
        return f"engine {self.engine.name} ended with exit code {code}{_quote(self.engine, self.log)}"

    async def stop(self) -> None:
        """End the engine and all that it started, and wait until it is gone."""
        assert self._leash.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._leash.stdin.close()
        await asyncio.to_thread(self._leash.wait)
        if self.container:
            with contextlib.suppress(EngineError):
                await asyncio.to_thread(containers.remove, self.container)

    async def ended(self, within_s: float) -> bool:
        """Whether the engine ends within that time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._leash.wait, within_s)
        return self._leash.returncode is not None


def spawn(engine: Engine, arm: Arm, deployment: Deployment, slot: int = 0) -> EngineProcess:
    """Start the server for an arm on a free port, the next one left to it as well, off the CPU that the load client
    of slot number `slot` gets.
    """
    port = free_port(row=2)
    log = EngineLog()
    # Another program starts a container's processes, and gives them its own set of CPUs.
    cores = share_all() if deployment.image else choose(os.sched_getaffinity(0), deployment.threads, slot)
    command, extra = engine.command(arm, deployment, port), engine.env(arm, deployment)
    container = containers.new_name() if deployment.image else None
    if container:
        names = _set_variables(extra, deployment)
        command = containers.command(container, deployment, command, names, Path(leash.__file__))
    with pinned(cores.engine):
        held = subprocess.Popen(
            [sys.executable, "-IS", leash.__file__, "--", *command],
            stdin=subprocess.PIPE,
            stdout=log.fileno(),
            stderr=subprocess.STDOUT,
            env=environment(extra, deployment),
            start_new_session=True,
        )
    return EngineProcess(engine, engine.endpoint(port), key(engine, arm, deployment), log, held, cores, container)


async def until_ready(process: EngineProcess, timeout_s: float) -> None:
    """Wait until a server takes requests. EngineError, with a line of its log, when it ends or takes too long."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not await process.engine.healthy(process.endpoint):
        if reason := process.obituary():
            raise EngineError(reason)
        if asyncio.get_running_loop().time() > deadline:
            why = _quote(process.engine, process.log)
            raise EngineError(f"engine {process.engine.name} was not ready after {timeout_s:g} s{why}")
        await asyncio.sleep(_POLL_S)
    if reason := process.obituary():
        raise EngineError(f"{reason} (and something else answers at {process.endpoint.base_url})")
    if process.container:
        process.first_process = await asyncio.to_thread(containers.first_process, process.container)


def key(engine: Engine, arm: Arm, deployment: Deployment) -> Key:
    """What two trials must share to share a process: the command apart from its port, and the environment."""
    variables = dict(deployment.environment) | dict(engine.env(arm, deployment))
    return (deployment.image or "", *engine.command(arm, deployment, 0)), tuple(sorted(variables.items()))


def environment(extra: Mapping[str, str], deployment: Deployment) -> dict[str, str]:
    """Ours without Ray's, the deployment's thread count (Ray sets another), the deployment's own, and `extra`."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return inherited | _set_variables(extra, deployment)


def _set_variables(extra: Mapping[str, str], deployment: Deployment) -> dict[str, str]:
    """What is not inherited, and all that a container gets."""
    threads = {"OMP_NUM_THREADS": str(deployment.threads), "PYTHONUNBUFFERED": "1"}
    return threads | dict(deployment.environment) | dict(extra)


def _quote(engine: Engine, log: EngineLog) -> str:
    line = engine.death(log.read().decode(errors="replace")) or log.telling_line()
    return f": {line}" if line else "; its log is empty"
