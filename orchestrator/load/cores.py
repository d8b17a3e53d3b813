"""Which CPUs the load client may use, and which are left to the engine beside it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass

_FEWEST = 4
"""Below so many CPUs, taking one from the engine would cost it more than the client's work does."""
_RESERVED_SHARE = 4
"""Clients of several slots are spread over the last 1/4 of the CPUs."""


@dataclass(frozen=True)
class Cores:
    """CPU numbers. `own`: the client has its CPU for itself as far as its engine goes; else both share all of them."""

    client: tuple[int, ...]
    engine: tuple[int, ...]
    own: bool


def choose(available: Collection[int], threads: int, slot: int) -> Cores:
    """A CPU of its own for the client of slot number `slot`, where enough are left for the engine's `threads` and one
    more, which its HTTP server needs."""
    cpus = tuple(sorted(available))
    if len(cpus) < max(_FEWEST, threads + 2):
        return Cores(cpus, cpus, own=False)
    place = slot % max(1, len(cpus) // _RESERVED_SHARE)
    own = cpus[-1 - place]
    return Cores((own,), tuple(cpu for cpu in cpus if cpu != own), own=True)


def share_all() -> Cores:
    """Every CPU for both."""
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    return Cores(cpus, cpus, own=False)


@contextlib.contextmanager
def pinned(cpus: Collection[int]) -> Iterator[None]:
    """A process started inside runs on `cpus` only, from its first instruction on: it inherits this thread's set."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
