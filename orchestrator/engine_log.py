"""What an engine printed: kept while it runs, and the line of it that says what was wrong."""

from __future__ import annotations

import os
import re
import tempfile

LOG_LIMIT = 256 * 1024
_TELLING = re.compile(r"\b\w*(error|exception|fatal|killed|cannot|refused)\b", re.IGNORECASE)
_NAMED = re.compile(r"(error|exception)[:,] \S", re.IGNORECASE)
"""A line that ends a traceback or a usage message: what is wrong, after its name."""
_POINTING = re.compile(r"root cause|\braise \w", re.IGNORECASE)
"""A line that only points at the telling one: a wrapper's own error (vLLM's), a traceback's quoted source."""


class EngineLog:
    """What an engine prints, in a file without a name: it goes when nobody holds it, whatever kills us."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile("a+b")  # noqa: SIM115 - lives as long as the engine

    def fileno(self) -> int:
        return self._file.fileno()

    @property
    def size(self) -> int:
        return os.fstat(self.fileno()).st_size

    def read(self, start: int = 0) -> bytes:
        """What was printed since offset `start`, at most the last 256 KiB of it."""
        return os.pread(self.fileno(), LOG_LIMIT, max(start, self.size - LOG_LIMIT))

    def telling_line(self) -> str:
        return telling_line(self.read().decode(errors="replace"))


def telling_line(text: str) -> str:
    """The last line of a log that says what is wrong, else sounds like it, else the last; at most 300 characters."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if _TELLING.search(line) and not _POINTING.search(line)]
    named = [line for line in telling if _NAMED.search(line)]
    return (named or telling or lines or [""])[-1][:300]
