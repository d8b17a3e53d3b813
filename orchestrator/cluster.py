"""The Ray cluster: connect to one or start one here, see what its nodes offer, choose the profile that fits."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from orchestrator import gpus, janitor
from orchestrator.errors import InputError
from orchestrator.interrupts import sigterm_interrupts
from orchestrator.spec import MatchSpec, ProfileSpec, SweepSpec

GIB = 1 << 30
_OBJECT_STORE_BYTES = 80 << 20  # results are some hundred kilobytes; Ray's least is 75 MB
_KNOCK_S = 5.0
_ACCELERATOR = "accelerator_type:"


@dataclass(frozen=True)
class Offer:
    """What one node has. `accelerator` is Ray's name of the node's first GPU."""

    node: str
    cpus: int
    memory_gib: float
    gpus: int
    accelerator: str | None

    def slots(self, match: MatchSpec) -> int:
        """How many slots of this kind the node holds."""
        if match.accelerator and match.accelerator != self.accelerator:
            return 0
        limits = [self.cpus // match.cpus, int(self.memory_gib / match.memory_gib)]
        if match.gpus:
            limits.append(self.gpus // match.gpus)
        return min(limits)


@dataclass(frozen=True)
class Choice:
    """A profile that fits, the number of slots to open, and the line that says so."""

    profile: str
    slots: int
    match: MatchSpec
    line: str
    resident: int = 1


@dataclass(frozen=True)
class Cluster:
    """A connection to Ray."""

    address: str

    def offers(self) -> list[Offer]:
        import ray

        nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
        return [_offer(node["NodeName"], node["Resources"]) for node in nodes if node["Alive"]]


def _offer(name: str, resources: dict[str, float]) -> Offer:
    kinds = [key.removeprefix(_ACCELERATOR) for key in resources if key.startswith(_ACCELERATOR)]
    return Offer(
        node=name,
        cpus=int(resources.get("CPU", 0)),
        memory_gib=resources.get("memory", 0) / GIB,
        gpus=int(resources.get("GPU", 0)),
        accelerator=kinds[0] if kinds else None,
    )


def this_machine() -> list[Offer]:
    """What a local cluster would offer, without starting one."""
    cards = gpus.cards()
    memory = psutil.virtual_memory().available / GIB
    kind = cards[0].accelerator if cards else None
    return [Offer("this machine", os.cpu_count() or 1, memory, len(cards), kind)]


def choose_profile(spec: SweepSpec, wanted: str, offers: Sequence[Offer]) -> Choice:
    """The profile called `wanted`, or for `auto` the first that the offers satisfy. InputError: why none does."""
    if wanted != "auto" and wanted not in spec.profiles:
        raise InputError(f"no profile {wanted!r}; the file has {', '.join(spec.profiles)}, or use auto")
    refused: list[str] = []
    for name in spec.profiles if wanted == "auto" else [wanted]:
        profile = spec.profiles[name]
        available = sum(offer.slots(profile.match) for offer in offers)
        needed = 1 if profile.slots == "all" else profile.slots
        if available >= needed:
            slots = available if profile.slots == "all" else profile.slots
            line = _line(name, slots, profile.match, refused)
            return Choice(name, slots, profile.match, line, profile.resident)
        refused.append(f"{name} needs {_describe(profile)}, found {_found(offers)}")
    raise InputError("no profile fits: " + "; ".join(refused))


def _line(name: str, slots: int, match: MatchSpec, refused: Sequence[str]) -> str:
    rest = f" ({'; '.join(refused)})" if refused else ""
    return f"profile {name}: {_count(slots, 'slot')} of {_size(match)}{rest}"


def _describe(profile: ProfileSpec) -> str:
    slots = 1 if profile.slots == "all" else profile.slots
    return f"{_count(slots, 'slot')} of {_size(profile.match)}"


def _size(match: MatchSpec) -> str:
    parts = [_count(match.cpus, "CPU"), f"{match.memory_gib:g} GiB"]
    if match.gpus:
        parts.insert(0, f"{match.gpus} x {match.accelerator or 'GPU'}")
    return ", ".join(parts)


def _found(offers: Sequence[Offer]) -> str:
    if not offers:
        return "no node"
    return " + ".join(
        ", ".join(
            ([f"{offer.gpus} x {offer.accelerator or 'GPU'}"] if offer.gpus else [])
            + [_count(offer.cpus, "CPU"), f"{offer.memory_gib:.1f} GiB"]
        )
        for offer in offers
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


@contextlib.contextmanager
def connect(address: str | None) -> Iterator[Cluster]:
    """Connect to `address`, to RAY_ADDRESS, or to a local cluster of our own that ends with the block."""
    address = address or os.environ.get("RAY_ADDRESS")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with contextlib.ExitStack() as stack:
        if address is None:
            # Ray's switch for "this machine only": every address becomes the loopback's, whatever the host is called.
            os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
            folder = stack.enter_context(_cleaned_folder())
            options: dict[str, Any] = {"address": "local", "include_dashboard": False, "_temp_dir": folder}
            options["object_store_memory"] = _OBJECT_STORE_BYTES
        else:
            _knock(address)
            options = {"address": address}
        stack.enter_context(_session(options))
        yield Cluster(address or "local")


@contextlib.contextmanager
def _cleaned_folder() -> Iterator[str]:
    """A folder for a local cluster, and a janitor who ends both when we do."""
    folder = tempfile.mkdtemp(prefix="orc-", dir="/tmp")  # the paths of Ray's sockets must stay short
    command = [sys.executable, "-IS", janitor.__file__, folder]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True):
        yield folder


def _knock(address: str) -> None:
    """InputError where nothing listens at host:port. Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "/" not in host:
        try:
            socket.create_connection((host, int(port)), timeout=_KNOCK_S).close()
        except (OSError, OverflowError) as error:
            raise InputError(f"Ray at {address}: nothing answers there ({error})") from error


@contextlib.contextmanager
def _session(options: dict[str, Any]) -> Iterator[None]:
    import ray

    try:
        ray.init(**options, log_to_driver=False, logging_level=logging.ERROR, namespace=f"orchestrate-{os.getpid()}")
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise InputError(f"Ray at {options['address']}: {str(error).splitlines()[0]}") from error
    try:
        with sigterm_interrupts():  # Ray's own handler ends the process with a stack of its C++
            yield
    finally:
        ray.shutdown()
