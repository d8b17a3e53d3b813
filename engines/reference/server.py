"""The server program: `python -m engines.reference.server --target FOLDER ...`.

The port is bound first and the model loads behind it: /health answers 503 until it is there. Exit codes: 0 after
SIGTERM or SIGINT, 1 for a fault, 2 for a model or an option that does not work.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType

import uvicorn

from engines.reference.serving.api import create_app
from engines.reference.serving.loop import DecodeLoop, LoopState
from engines.reference.serving.options import Options, parse
from engines.reference.serving.served import Loaded
from engines.reference.serving.service import Service

log = logging.getLogger("engines.reference")

_FAILED_HEALTH_S = 1.0
"""How long a server whose engine died still answers, so that clients and /health say so."""
_KEEP_ALIVE_S = 300
"""Longer than any pause of a load client, which would else meet a connection that is just being closed."""


def main(arguments: Sequence[str] | None = None) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    options = parse(arguments)
    return serve(options, partial(_load, options))


def serve(options: Options, load: Callable[[], Loaded]) -> int:
    """Serve what `load` returns until a signal or a fault. Returns the exit code."""
    try:
        listener = listen(options.host, options.port)
    except OSError as error:
        log.error("cannot listen on %s:%d: %s", options.host, options.port, error.strerror)
        return 1
    return asyncio.run(_serve(options, load, listener))


def listen(host: str, port: int) -> socket.socket:
    """A listening socket whose connections send at once.

    asyncio sets TCP_NODELAY only on sockets it opened itself. Without it the first chunks of a stream wait for the
    client's delayed acknowledgement, 40 ms, which lengthens TTFT and shortens TPOT.
    """
    listener = socket.create_server((host, port), backlog=2048)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted connections inherit it
    return listener


async def _serve(options: Options, load: Callable[[], Loaded], listener: socket.socket) -> int:
    code = 0
    started = time.monotonic()

    def on_end(before: LoopState, error: Exception) -> None:
        nonlocal code
        code = _report(before, error)
        delay = _FAILED_HEALTH_S if before is LoopState.READY else 0
        asyncio.get_running_loop().call_later(delay, server.stop)

    def on_ready() -> None:
        log.info("ready after %.1f s: %s", time.monotonic() - started, _sentence(options))

    loop = DecodeLoop(load, options.max_batch + options.max_queue, on_ready, on_end)
    server = _Server(_uvicorn_config(options, Service(options, loop)))
    host, port = listener.getsockname()[:2]
    log.info("loading %s on http://%s:%d", options.target, host, port)
    loop.start()
    await server.serve(sockets=[listener])
    if not loop.stop(timeout=options.grace_s):
        # A thread inside the model cannot be ended, and the interpreter must not be torn down under it.
        logging.shutdown()
        os._exit(code)
    return code


class _Server(uvicorn.Server):
    """uvicorn's server, except that a signal ends it with an exit code and not by raising the signal again."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    def stop(self) -> None:
        self.should_exit = True


def _uvicorn_config(options: Options, service: Service) -> uvicorn.Config:
    return uvicorn.Config(
        create_app(service),
        lifespan="off",
        ws="none",
        log_config=None,
        log_level=logging.WARNING,
        access_log=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=options.grace_s,
    )


def _report(before: LoopState, error: Exception) -> int:
    """Log why the decode thread ended; the exit code."""
    if before is LoopState.LOADING and isinstance(error, ValueError | OSError):
        log.error("cannot load: %s", error)
        return 2
    log.error("the decode thread died", exc_info=error)
    return 1


def _sentence(options: Options) -> str:
    drafter = f"drafter {options.drafter}" if options.drafter else "no drafter"
    return (
        f"{options.model_name!r} = {options.target} with {drafter}, {options.dtype} on {options.device}, "
        f"{options.threads} threads, {options.max_batch} at once, {options.max_context} tokens of context"
    )


def _load(options: Options) -> Loaded:
    # Brings torch: imported here so that the port is bound and /health answers before that.
    from engines.reference.serving.loading import load

    return load(options)


if __name__ == "__main__":
    raise SystemExit(main())
