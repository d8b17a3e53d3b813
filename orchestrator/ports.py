"""TCP ports of this machine for servers that are about to start."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

_LOWEST = 20_000
_HIGHEST = 32_768
_TRIES = 1_000
_OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port(address: str = "127.0.0.1", row: int = 1) -> int:
    """The first of `row` ports that nothing listens on now, drawn below those that the kernel gives to outgoing
    connections: one of these could be taken between the asking and the server's start. Rows of one length do not
    overlap there. OSError where there is none.
    """
    below = min(_HIGHEST, _first_outgoing()) - (row - 1)
    for _ in range(_TRIES if below > _LOWEST else 0):
        with contextlib.suppress(OSError):
            return _probed(address, random.SystemRandom().randrange(_LOWEST, below, row), row)
    for _ in range(_TRIES):  # the whole range is the kernel's, or full
        with contextlib.suppress(OSError, OverflowError):
            return _probed(address, 0, row)
    raise OSError(f"no {row} free ports in a row on {address}")


def _probed(address: str, port: int, row: int) -> int:
    """The port, or for 0 one of the kernel's. OSError where one of the row is taken, OverflowError beyond the last."""
    with contextlib.ExitStack() as probes:
        probe = probes.enter_context(socket.socket())
        probe.bind((address, port))
        first = int(probe.getsockname()[1])
        for offset in range(1, row):
            probes.enter_context(socket.socket()).bind((address, first + offset))
        return first


def _first_outgoing() -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(_OUTGOING.read_text().split()[0])
    return _HIGHEST
