"""The child process that sends and stamps, as its owner sees it: started, told, heard, stopped, mourned."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO, cast

from engines.base import EngineError
from orchestrator.engine_log import EngineLog
from orchestrator.load import frames
from orchestrator.load.cores import Cores, pinned

SILENCE_S = 30.0
"""How long the child may say nothing; it beats once a second."""

_FOLDER = Path(__file__).parents[2]


class WorkerLostError(Exception):
    """The child is gone or makes no sense; the message is one line."""


class Worker:
    """One child process. `cores` are the CPUs that it says it may use, `startup_s` is how long it took to say so."""

    def __init__(self, cores: Cores) -> None:
        self._log = EngineLog()
        began = time.perf_counter()
        with pinned(cores.client):
            self._process = subprocess.Popen(
                [sys.executable, "-m", "orchestrator.load.child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log.fileno(),
                cwd=_FOLDER,  # what runs is this code, wherever Ray put its workers
                start_new_session=True,  # Ctrl-C is the driver's alone
            )
        self._began = began
        self.startup_s = 0.0
        self.cores: list[int] = []

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ready(self) -> None:
        """Wait until it listens."""
        self.cores = (await self.hear())["ready"]
        self.startup_s = time.perf_counter() - self._began

    async def tell(self, message: dict[str, Any]) -> None:
        """WorkerLostError when it is gone; EngineError for a prompt that is no text."""
        try:
            await asyncio.to_thread(frames.write, cast(BinaryIO, self._process.stdin), message)
        except OSError as error:
            raise WorkerLostError(await self._obituary()) from error
        except TypeError as error:  # orjson's, for half of a surrogate pair
            raise EngineError(f"a prompt cannot be sent: {error}") from error

    async def hear(self) -> dict[str, Any]:
        """Its next message. The thread that waits for it ends with the child, if not sooner."""
        try:
            async with asyncio.timeout(SILENCE_S):
                message = await asyncio.to_thread(frames.read, cast(BinaryIO, self._process.stdout))
        except TimeoutError as error:
            self._process.kill()
            raise WorkerLostError(f"the load client said nothing for {SILENCE_S:g} s") from error
        except ValueError as error:
            self._process.kill()
            raise WorkerLostError("the load client's message cannot be read") from error
        if message is None:
            raise WorkerLostError(await self._obituary())
        return message

    async def stop(self) -> None:
        self._process.kill()
        await asyncio.to_thread(self._process.wait)
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):  # what was not sent is not wanted any more
                cast(BinaryIO, pipe).close()

    async def _obituary(self) -> str:
        code = await asyncio.to_thread(self._process.wait)
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        line = self._log.telling_line()
        return f"the load client ended {how}" + (f": {line}" if line else "")
