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
    connections: one of these could be taken between the asking and the server's start. OSError where there is none;
    where the range is full, a port that may be alone.
    """
    below = min(_HIGHEST, _first_outgoing()) - (row - 1)
    for _ in range(_TRIES if below > _LOWEST else 0):
        port = random.SystemRandom().randrange(_LOWEST, below)
        with contextlib.suppress(OSError), contextlib.ExitStack() as probes:
            for offset in range(row):
                probes.enter_context(socket.socket()).bind((address, port + offset))
            return port
    with socket.socket() as probe:  # the whole range is the kernel's, or full
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def _first_outgoing() -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(_OUTGOING.read_text().split()[0])
    return _HIGHEST
