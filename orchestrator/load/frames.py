"""JSON messages over a pipe: a line with the number of bytes, then the bytes."""

from __future__ import annotations

from typing import Any, BinaryIO

import orjson

_DIGITS = 12


def write(pipe: BinaryIO, message: dict[str, Any]) -> None:
    """OSError when nobody reads any more."""
    payload = orjson.dumps(message)
    pipe.write(b"%d\n" % len(payload) + payload)
    pipe.flush()


def read(pipe: BinaryIO) -> dict[str, Any] | None:
    """The next message; None when the writer is gone, in the middle of a message or not. ValueError for garbage."""
    head = pipe.readline(_DIGITS)
    if not head.endswith(b"\n"):
        if len(head) == _DIGITS:
            raise ValueError(f"not a message: {head!r}")
        return None
    payload = pipe.read(int(head))
    if len(payload) < int(head):
        return None
    message = orjson.loads(payload)
    if not isinstance(message, dict):
        raise ValueError(f"not a message: {payload[:40]!r}")
    return message
