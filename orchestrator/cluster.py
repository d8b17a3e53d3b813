"""The Ray cluster: connect to one or start one here, see what its nodes offer, choose the profile that fits."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from orchestrator import gpus
from orchestrator.errors import InputError
from orchestrator.spec import MatchSpec, ProfileSpec, SweepSpec

GIB = 1 << 30
_OBJECT_STORE_BYTES = 80 << 20  # results are some hundred kilobytes; Ray's least is 75 MB
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
            return Choice(name, slots, profile.match, _line(name, slots, profile.match, refused))
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
    folder = None
    if address is None:
        # Ray's switch for "this machine only": every address becomes the loopback's, whatever the host is called.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        folder = tempfile.mkdtemp(prefix="orc-", dir="/tmp")  # the paths of its sockets must stay short
    import ray

    try:
        try:
            ray.init(**_options(address, folder))
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise InputError(f"Ray at {address or 'this machine'}: {str(error).splitlines()[0]}") from error
        yield Cluster(address or "local")
    finally:
        ray.shutdown()
        if folder:
            shutil.rmtree(folder, ignore_errors=True)


def _options(address: str | None, folder: str | None) -> dict[str, Any]:
    common = {"log_to_driver": False, "logging_level": "ERROR", "namespace": f"orchestrate-{os.getpid()}"}
    if address is not None:
        return common | {"address": address}
    local = {"include_dashboard": False, "object_store_memory": _OBJECT_STORE_BYTES, "_temp_dir": folder}
    return common | {"address": "local"} | local
