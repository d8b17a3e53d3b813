"""Reading a run that may be damaged: go on with the rest, and name each file that could not be read."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeVar

import yaml
from pydantic import ValidationError

from orchestrator.errors import InputError

T = TypeVar("T")

DAMAGE = (InputError, OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError)
"""What reading a damaged file raises."""


class Reading:
    """One reading of a run. `problems` has a line for each file that was damaged."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def attempt(self, what: str, read: Callable[[], T], otherwise: T) -> T:
        """What `read` gives; `otherwise` where the file called `what` is damaged."""
        try:
            return read()
        except DAMAGE as error:
            self.problems.append(_complaint(what, error))
            return otherwise

    @contextlib.contextmanager
    def noting(self, what: str) -> Iterator[None]:
        """Go on after the block where the file called `what` is damaged."""
        try:
            yield
        except DAMAGE as error:
            self.problems.append(_complaint(what, error))


def _complaint(what: str, error: Exception) -> str:
    """A damaged file in one line."""
    text = str(error)
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        text = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    line = text.splitlines()[0] if text else type(error).__name__
    # Errors of the store begin with the file's whole path.
    return line[line.index(what) :] if what in line else f"{what}: {line}"
