"""One change at a time on a target: a file on its first host that says who holds it."""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import os
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import psutil
from pydantic import ValidationError

from engines.home import home
from orchestrator.errors import InputError
from orchestrator.promotion.host import Host
from orchestrator.records import Record
from orchestrator.times import now


class Owner(Record):
    """Who holds the lock. `pid` and `started` name a process of `machine` as long as `boot` lasts."""

    user: str
    machine: str
    boot: str
    pid: int
    started: float
    since: str
    token: str

    def words(self) -> str:
        return f"{self.user}@{self.machine}, process {self.pid}, since {self.since}"


@contextlib.contextmanager
def held(host: Host, path: PurePosixPath, target: str, break_lock: bool = False) -> Iterator[Owner]:
    """Hold the target. InputError where somebody else does: the lock of a dead process of this machine is taken over,
    that of another machine only with `break_lock`."""
    mine = _me()
    data = mine.model_dump_json().encode()
    host.make_folder(path.parent)
    with _one_taker(target):
        if not host.create_exclusive(path, data):
            _evict(host, path, target, break_lock)
            if not host.create_exclusive(path, data):
                raise InputError(f"{target}: somebody else took the lock just now; try again")
    try:
        yield mine
    finally:
        if _owner(host, path) == mine:
            host.remove(path)


def holder(host: Host, path: PurePosixPath) -> Owner | None:
    """Who holds the lock now and lives, as far as this machine can tell."""
    owner = _owner(host, path)
    return None if owner is None or _dead(owner) else owner


def _evict(host: Host, path: PurePosixPath, target: str, break_lock: bool) -> None:
    owner = _owner(host, path)
    if owner is not None and not _dead(owner) and not break_lock:
        raise InputError(
            f"{target}: a change is going on ({owner.words()}); wait for it, or --break-lock where you know that "
            "this process is dead"
        )
    host.remove(path)


def _owner(host: Host, path: PurePosixPath) -> Owner | None:
    data = host.read(path)
    if data is None:
        return None
    try:
        return Owner.model_validate_json(data)
    except ValidationError as error:
        raise InputError(f"{host.name}:{path}: this is not a lock of ours; remove it by hand") from error


def _dead(owner: Owner) -> bool:
    """Whether the owner certainly runs no more: a process of this machine that is gone."""
    if owner.machine != socket.gethostname():
        return False
    if owner.boot != _boot():
        return True
    try:
        return abs(psutil.Process(owner.pid).create_time() - owner.started) > 1
    except psutil.NoSuchProcess:
        return True


def _me() -> Owner:
    return Owner(
        user=getpass.getuser(),
        machine=socket.gethostname(),
        boot=_boot(),
        pid=os.getpid(),
        started=psutil.Process().create_time(),
        since=now(),
        token=secrets.token_hex(8),
    )


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@contextlib.contextmanager
def _one_taker(target: str) -> Iterator[None]:
    """Keeps two processes of this machine from evicting the same dead owner, one of them the other."""
    folder = home() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{target}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
