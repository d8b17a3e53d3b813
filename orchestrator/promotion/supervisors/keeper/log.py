"""A log file of bounded size that a server writes to by itself, so that it can outlive its keeper."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

LIMIT = 16 << 20
KEPT = 3
"""Older files, `server.log.1` being the newest of them."""


class Log:
    """Appended to by the server and by us. Rotated by copying and cutting: the server's descriptor stays right."""

    def __init__(self, path: Path, limit: int = LIMIT) -> None:
        self.path = path
        self.limit = limit
        self.descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, text: str) -> None:
        """A line of our own. A full disk must not end the keeper."""
        line = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} keeper: {text}\n"
        try:
            os.write(self.descriptor, line.encode())
        except OSError:
            return

    def rotate(self) -> None:
        """Start the file anew once it is too large. What is printed between copy and cut, microseconds, is lost."""
        if os.fstat(self.descriptor).st_size <= self.limit:
            return
        try:
            for number in range(KEPT - 1, 0, -1):
                older = self._older(number)
                if older.exists():
                    older.replace(self._older(number + 1))
            shutil.copyfile(self.path, self._older(1))
            reason = ""
        except OSError as error:
            reason = f"; what it held is gone: {error.strerror}"
        os.ftruncate(self.descriptor, 0)
        self.note(f"log started anew at {self.limit} bytes{reason}")

    def _older(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")
