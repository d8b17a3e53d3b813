"""Environments made by real venv and pip processes: complete or not there."""

from __future__ import annotations

import shutil
import subprocess
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import pytest

from engines import envs
from engines.base import EngineError
from engines.envs import ENVIRONMENTS, InstallError, State
from engines.envs.inspection import inspect
from tests.engines.envs.conftest import Shelf


def engines_folder(shelf: Shelf) -> Path:
    return shelf.folder.parent / "home" / "engines"


def kept(shelf: Shelf) -> list[str]:
    """What lies in the engines folder but locks."""
    folder = engines_folder(shelf)
    names = (path.name for path in folder.iterdir()) if folder.exists() else ()
    return sorted(name for name in names if not name.endswith(".lock"))


def version_in(python: str | Path, module: str = "tiny") -> str:
    code = f"import {module}; print({module}.VERSION)"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_an_environment_is_made_once_and_serves_by_name(shelf: Shelf) -> None:
    stages: list[str] = []
    python = envs.install("tiny", lambda stage, seconds: stages.append(stage))
    assert envs.interpreter("tiny") == str(python) == str(engines_folder(shelf) / "tiny" / "bin" / "python")
    assert version_in(python) == "1.0"
    assert {"making the environment", "installing 1 packages"} <= set(stages)
    made = (engines_folder(shelf) / "tiny").resolve().stat()
    assert envs.install("tiny") == python
    assert (engines_folder(shelf) / "tiny").resolve().stat().st_ino == made.st_ino
    assert kept(shelf) == [f".tiny-{ENVIRONMENTS['tiny'].digest}", "tiny"]


def test_a_distribution_of_ours_comes_along_as_the_code_that_is_here(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = ENVIRONMENTS["tiny"].digest
    entry = replace(ENVIRONMENTS["tiny"], ours=shelf.project())
    monkeypatch.setitem(ENVIRONMENTS, "tiny", entry)
    assert entry.digest != before, "an environment without it is outdated"
    python = envs.install("tiny")
    assert (version_in(python), version_in(python, "ours")) == ("1.0", "first")
    (shelf.folder / "ours" / "ours.py").write_text("VERSION = 'later'\n")
    assert version_in(python, "ours") == "later"
    assert envs.state(entry) is State.INSTALLED


def test_a_distribution_of_ours_that_cannot_be_had_leaves_nothing(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = shelf.project()
    monkeypatch.setitem(ENVIRONMENTS, "tiny", replace(ENVIRONMENTS["tiny"], ours=project))
    (project / "backend.py").write_text("raise RuntimeError('no backend')\n")
    with pytest.raises(InstallError, match="tiny cannot be installed: "):
        envs.install("tiny")
    assert kept(shelf) == []
    monkeypatch.setitem(ENVIRONMENTS, "tiny", replace(ENVIRONMENTS["tiny"], ours=shelf.folder / "nowhere"))
    with pytest.raises(InstallError, match="which is in this project's repository: install from a clone"):
        envs.install("tiny")


def test_new_pins_make_a_new_environment_and_the_old_one_goes(shelf: Shelf) -> None:
    envs.install("tiny")
    shelf.wheel("tiny", "2.0")
    shelf.pin("tiny==2.0")
    assert envs.state(ENVIRONMENTS["tiny"]) is State.OUTDATED
    assert inspect(ENVIRONMENTS["tiny"]).remedy == "orchestrate engines install tiny"
    assert version_in(envs.interpreter("tiny")) == "1.0"
    assert version_in(envs.install("tiny")) == "2.0"
    assert kept(shelf) == [f".tiny-{ENVIRONMENTS['tiny'].digest}", "tiny"]


def test_a_failed_update_leaves_what_was_there(shelf: Shelf) -> None:
    envs.install("tiny")
    before = kept(shelf)
    shelf.pin("tiny==3.0")
    with pytest.raises(InstallError, match=r"does not offer tiny==3\.0"):
        envs.install("tiny")
    assert kept(shelf) == before
    assert version_in(envs.interpreter("tiny")) == "1.0"


def test_a_pin_without_a_wheel_leaves_nothing(shelf: Shelf) -> None:
    shelf.pin("tiny==1.0", "torch==2.13.0+cpu")
    with pytest.raises(InstallError) as caught:
        envs.install("tiny")
    assert str(caught.value) == (
        "tiny cannot be installed: the package index that pip is set to does not offer torch==2.13.0+cpu, the cpu "
        "build; add PyTorch's index of cpu builds to pip's configuration, beside the one that is there"
    )
    assert kept(shelf) == []


def test_an_interrupt_leaves_nothing(shelf: Shelf) -> None:
    def interrupt(stage: str, _: float) -> None:
        if stage.startswith("installing"):
            raise KeyboardInterrupt

    with pytest.raises(InstallError, match="tiny: installation interrupted; nothing was kept"):
        envs.install("tiny", interrupt)
    assert kept(shelf) == []


def test_what_a_killed_installer_left_is_not_taken_for_an_environment(shelf: Shelf) -> None:
    half = engines_folder(shelf) / f".tiny-{ENVIRONMENTS['tiny'].digest}" / "bin"
    half.mkdir(parents=True)
    (half / "python").touch()
    assert envs.state(ENVIRONMENTS["tiny"]) is State.MISSING
    assert version_in(envs.install("tiny")) == "1.0"


def test_a_damaged_environment_shows_and_is_made_again(shelf: Shelf) -> None:
    python = envs.install("tiny")
    for path in python.parent.parent.glob("lib/python*/site-packages/tiny*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    found = inspect(ENVIRONMENTS["tiny"])
    assert found.state.startswith("damaged: ")
    assert (found.usable, found.remedy) == (False, "orchestrate engines install tiny")
    assert version_in(envs.install("tiny")) == "1.0"
    assert inspect(ENVIRONMENTS["tiny"]).usable


def test_a_full_disk_is_said_before_anything_is_made(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10, 10, 0))
    with pytest.raises(InstallError, match=r"has 0\.0 GiB free, it needs 0; free some, or set ORCHESTRATE_HOME"):
        envs.install("tiny")
    assert kept(shelf) == []


def test_interpreters_that_are_no_environment_stay_what_they_are(shelf: Shelf) -> None:
    assert envs.interpreter("/usr/bin/python3") == "/usr/bin/python3"
    with pytest.raises(EngineError, match="tiny is not installed; run: orchestrate engines install tiny"):
        envs.interpreter("tiny")
    with pytest.raises(EngineError, match="no engine environment 'trt'; there are vllm-cpu, vllm-cuda, sglang-cuda"):
        envs.install("trt")
