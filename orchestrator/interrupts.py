"""Being told to end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """SIGTERM is as Ctrl-C meanwhile, so that what is begun is undone or kept, and told of."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(_: int, frame: FrameType | None) -> None:
    """As an event loop takes Ctrl-C, where one runs. A shell's background process has none: it is interrupted all the
    same.
    """
    handler = signal.getsignal(signal.SIGINT)
    if callable(handler):
        handler(signal.SIGINT, frame)
    else:
        raise KeyboardInterrupt
