"""What can become of a request or command instead of its answer."""

from __future__ import annotations


class LoopError(Exception):
    """The decode loop cannot do it; the message is one line."""


class BusyError(LoopError):
    """Only possible while no request runs."""


class FullError(LoopError):
    """The waiting queue is full."""


class RefusedError(LoopError):
    """The engine cannot run this request or method."""


class LoadingError(LoopError):
    """The engine is not there yet."""


class DeadError(LoopError):
    """The engine has stopped after a fault."""


class Gone(Exception):  # noqa: N818 (an outcome, not an error)
    """The request was cancelled: its client went away or the server stops."""
