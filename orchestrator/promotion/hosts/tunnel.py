"""A port of this machine that leads somewhere else."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

from orchestrator.promotion.host import LOOPBACK, HostError

_CHUNK = 1 << 16
_ACCEPT_S = 0.2


class Stream(Protocol):
    """What a socket and an SSH channel have in common."""

    def fileno(self) -> int: ...
    def recv(self, size: int, /) -> bytes: ...
    def sendall(self, data: bytes, /) -> None: ...
    def close(self) -> None: ...


@contextlib.contextmanager
def tunnel(connect: Callable[[], Stream | None]) -> Iterator[int]:
    """Listen on a free loopback port; `connect` makes the far end of each connection. All are cut at the end.

    A far end that cannot be made (None, OSError, HostError) closes the near one, as a refused connection would.
    """
    with socket.create_server((LOOPBACK, 0)) as listener, contextlib.ExitStack() as opened:
        listener.settimeout(_ACCEPT_S)
        over = threading.Event()
        opened.callback(over.set)
        threading.Thread(target=_accept, args=(listener, connect, over), daemon=True).start()
        yield listener.getsockname()[1]


def _accept(listener: socket.socket, connect: Callable[[], Stream | None], over: threading.Event) -> None:
    while not over.is_set():
        try:
            near, _ = listener.accept()
        except TimeoutError:
            continue
        except OSError:
            return  # the listener was closed
        threading.Thread(target=_serve, args=(near, connect, over), daemon=True).start()


def _serve(near: socket.socket, connect: Callable[[], Stream | None], over: threading.Event) -> None:
    with near, contextlib.suppress(OSError, EOFError, HostError):
        near.settimeout(None)
        far = connect()
        if far is not None:
            with contextlib.closing(far):
                _carry(near, far, over)


def _carry(near: Stream, far: Stream, over: threading.Event) -> None:
    """Pass bytes both ways until either side closes."""
    with selectors.DefaultSelector() as selector:
        selector.register(near, selectors.EVENT_READ, (near, far))
        selector.register(far, selectors.EVENT_READ, (far, near))
        while not over.is_set():
            for key, _ in selector.select(_ACCEPT_S):
                source, target = key.data
                data = source.recv(_CHUNK)
                if not data:
                    return
                target.sendall(data)
