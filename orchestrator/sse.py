"""Server-sent events, parsed as they arrive (HTML standard, section 9.2)."""

from __future__ import annotations


class EventParser:
    """Turns the bytes of a stream, cut anywhere, into the `data` of its events. Lines end with LF or CR LF."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, received: bytes) -> list[str]:
        """The data of the events that end within what was received so far, in order."""
        *lines, self._rest = (self._rest + received).split(b"\n")
        events = []
        for line in lines:
            event = self._line(line.removesuffix(b"\r"))
            if event is not None:
                events.append(event)
        return events

    def _line(self, line: bytes) -> str | None:
        if line:
            field, _, value = line.partition(b":")
            if field == b"data":
                self._data.append(value.removeprefix(b" "))
            return None
        data, self._data = self._data, []
        return b"\n".join(data).decode(errors="replace") if data else None
