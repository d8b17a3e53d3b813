"""Server-sent events, split as they arrive (HTML standard, section 9.2)."""

from __future__ import annotations


class EventSplitter:
    """Turns the bytes of a stream, cut anywhere, into the `data` of its events. Lines end with LF or CR LF."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, received: bytes) -> list[bytes]:
        """The data of the events that end within what was received so far, in order."""
        # What nearly every read holds: one whole event of one line.
        if not self._rest and not self._data and received.startswith(b"data: "):
            end = received.find(b"\n")
            if end == len(received) - 2 and received.endswith(b"\n\n") and received[end - 1] != 13:
                return [received[6:end]]
        return self._split(received)

    def _split(self, received: bytes) -> list[bytes]:
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
