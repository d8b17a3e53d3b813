"""Environments on disk: engines/NAME under the home folder is a link to a complete one, or is not there.

An environment is made in a folder named after its pins, which never moves (scripts in it name their interpreter by
path), and the link is set when it is complete. A new set of pins is a new folder; the old one goes when the link does.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

from engines.base import EngineError
from engines.child import run_child
from engines.envs.catalogue import ENVIRONMENTS, GIB, Environment, environment
from engines.envs.pip import InstallError, explain
from engines.envs.suitability import base_python, obstacle
from engines.home import home
from engines.progress import Clock, Progress

_VERSION_S = 30


class State(StrEnum):
    """What is at an environment's place."""

    INSTALLED = "installed"
    OUTDATED = "outdated"
    MISSING = "missing"


def folder() -> Path:
    return home() / "engines"


def place(entry: Environment) -> Path:
    return folder() / entry.name


def state(entry: Environment) -> State:
    if not _python(place(entry)).exists():
        return State.MISSING
    return State.INSTALLED if place(entry).resolve() == _made(entry) else State.OUTDATED


def interpreter(name: str) -> str:
    """A profile's `interpreter`: an environment's name becomes its Python, anything else stays what it is.

    EngineError, with the command that helps, for an environment that is not installed.
    """
    if name not in ENVIRONMENTS:
        return name
    entry = ENVIRONMENTS[name]
    if state(entry) is State.MISSING:
        raise EngineError(f"engine environment {name} is not installed; run: orchestrate engines install {name}")
    return str(_python(place(entry)))


def installed_version(entry: Environment) -> str:
    """What the environment itself says it holds. EngineError when it cannot be asked."""
    code = f"import importlib.metadata as m; print(m.version({entry.package!r}))"
    python = str(_python(place(entry)))
    try:
        done = subprocess.run(
            [python, "-I", "-c", code], capture_output=True, text=True, timeout=_VERSION_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"{python}: {error}") from error
    if done.returncode:
        raise EngineError(f"{python}: {(done.stderr.strip().splitlines() or ['it says nothing'])[-1]}")
    return done.stdout.strip()


def install(name: str, progress: Progress | None = None) -> Path:
    """Have the environment in its place; one that is there with today's pins stays. Returns its interpreter.

    InstallError, in one line and with nothing left behind, when it cannot be made.
    """
    entry, clock = environment(name), Clock(progress)
    if reason := obstacle(entry):
        raise InstallError(f"{name} cannot run on this machine: {reason}")
    if entry.ours and not (entry.ours / "pyproject.toml").is_file():
        raise InstallError(f"{name} needs {entry.ours}, which is in this project's repository: install from a clone")
    try:
        with _locked(entry, clock):
            if not _sound(entry):
                _check_space(entry)
                _make(entry, clock)
    except KeyboardInterrupt as interrupt:
        raise InstallError(f"{name}: installation interrupted; nothing was kept") from interrupt
    except OSError as error:
        raise InstallError(f"{name} cannot be installed: {folder()}: {error.strerror or error}") from error
    return _python(place(entry))


def _sound(entry: Environment) -> bool:
    """Whether there is nothing to do."""
    try:
        return state(entry) is State.INSTALLED and installed_version(entry) == entry.version
    except EngineError:
        return False


def _make(entry: Environment, clock: Clock) -> None:
    made = _made(entry)
    _remove(made)
    try:
        with tempfile.TemporaryDirectory(dir=folder(), prefix=".downloads-") as workplace:
            _fill(entry, made, Path(workplace), clock)
    except BaseException:
        _remove(made)
        raise
    former = place(entry).resolve() if place(entry).is_symlink() else None
    _link(made, place(entry))
    if former is not None and former != made:
        _remove(former)


def _fill(entry: Environment, made: Path, workplace: Path, clock: Clock) -> None:
    """pip comes along, because vLLM's /server_info lists packages with it and fails without."""
    variables = {**os.environ, "TMPDIR": str(workplace)}
    pinned = ("--only-binary", ":all:", "--requirement", str(entry.requirements))
    steps = {
        "making the environment": [base_python(entry) or sys.executable, "-m", "venv", str(made)],
        f"installing {len(entry.pins)} packages": _pip(made, *pinned),
    }
    if entry.ours:
        steps[f"installing {entry.ours.name}"] = _pip(made, "--no-build-isolation", "--editable", str(entry.ours))
    for stage, command in steps.items():
        output = run_child(command, stage, workplace, variables, clock)
        if output is not None:
            raise InstallError(f"{entry.name} cannot be installed: {explain(output)}")


def _pip(made: Path, *what: str) -> list[str]:
    """pip of our environment fills the other. The pins are complete, so what they do not name must not come along; a
    distribution of ours is built with the setuptools among them."""
    command = [sys.executable, "-m", "pip", "--python", str(_python(made)), "--no-input"]
    command += ["--disable-pip-version-check", "install", "--quiet", "--progress-bar", "off", "--no-deps"]
    return [*command, *what]


def _made(entry: Environment) -> Path:
    return folder().resolve() / f".{entry.name}-{entry.digest}"


def _python(environment_folder: Path) -> Path:
    return environment_folder / "bin" / "python"


def _link(target: Path, link: Path) -> None:
    fresh = link.with_name(f".{link.name}.link")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target.name)
    fresh.replace(link)


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)


def _check_space(entry: Environment) -> None:
    free = shutil.disk_usage(folder()).free
    if free < entry.disk_bytes:
        raise InstallError(
            f"{entry.name} cannot be installed: {folder()} has {free / GIB:.1f} GiB free, it needs "
            f"{entry.disk_bytes / GIB:.0f}; free some, or set ORCHESTRATE_HOME to a larger disk"
        )


@contextlib.contextmanager
def _locked(entry: Environment, clock: Clock) -> Iterator[None]:
    """One installer at a time. The kernel lets go of the lock when we die."""
    folder().mkdir(parents=True, exist_ok=True)
    with (folder() / f".{entry.name}.lock").open("w") as lock:
        while True:
            try:
                fcntl.flock(lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                clock.show("waiting for another installation")
                time.sleep(0.2)
        yield
