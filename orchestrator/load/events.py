"""Server-sent events, split as they arrive (HTML standard, section 9.2)."""

from __future__ import annotations

from collections.abc import Sequence

_FIELD = b"data: "
_BREAK = b"\n\n"


def single_lines(bodies: Sequence[bytes]) -> list[bytes] | None:
    """The data of bodies that are one event of one line each; None where they are anything else.

    Each body ends with a blank line and has no other line break, and cutting there gives as many parts as bodies: so
    each is a line of its own.
    """
    text, count = b"".join(bodies), len(bodies)
    if not text.startswith(_FIELD) or text.count(b"\n") != 2 * count:
        return None
    lines = text[len(_FIELD) : -2].split(_BREAK + _FIELD)
    if len(lines) != count or [body[-2:] for body in bodies].count(_BREAK) != count:
        return None
    return lines


class EventSplitter:
    """Turns the bytes of a stream, cut anywhere, into the `data` of its events. Lines end with LF or CR LF."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    @property
    def between(self) -> bool:
        """Whether all that came so far were whole events."""
        return not self._rest and not self._data

    def feed(self, received: bytes) -> list[bytes]:
        """The data of the events that end within what was received so far, in order."""
        *lines, self._rest = (self._rest + received).split(b"\n")
        events = []
        for line in lines:
            event = self._line(line.removesuffix(b"\r"))
            if event is not None:
                events.append(event)
        return events

    def _line(self, line: bytes) -> bytes | None:
        if line:
            field, _, value = line.partition(b":")
            if field == b"data":
                self._data.append(value.removeprefix(b" "))
            return None
        data, self._data = self._data, []
        return b"\n".join(data) if data else None
