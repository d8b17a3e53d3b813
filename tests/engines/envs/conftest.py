"""Small environments made of wheels that the tests write, so that pip needs no index."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from engines.envs import ENVIRONMENTS, Environment


@dataclass(frozen=True)
class TinyEnvironment(Environment):
    file: Path = Path()

    @property
    def requirements(self) -> Path:
        return self.file


@dataclass
class Shelf:
    """A folder of wheels, and the pins of the environment `tiny`."""

    folder: Path

    def wheel(self, name: str, version: str) -> None:
        info = f"{name}-{version}.dist-info"
        files = {
            f"{name}.py": f"VERSION = {version!r}\n",
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Dist: absent\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
        with zipfile.ZipFile(self.folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
            for path, text in (files | {f"{info}/RECORD": record}).items():
                archive.writestr(path, text)

    def pin(self, *pins: str) -> None:
        (self.folder / "tiny.txt").write_text("# what tiny holds\n" + "".join(f"{pin}\n" for pin in pins))


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    """`tiny` 1.0 on the shelf and in the catalogue; a home of its own."""
    shelf = Shelf(tmp_path / "shelf")
    shelf.folder.mkdir()
    monkeypatch.setenv("ORCHESTRATE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf.folder))
    entry = TinyEnvironment(
        name="tiny",
        engine="fake",
        about="for tests",
        package="tiny",
        device="cpu",
        pythons=((3, 11), (3, 99)),
        disk_bytes=1,
        file=shelf.folder / "tiny.txt",
    )
    monkeypatch.setitem(ENVIRONMENTS, "tiny", entry)
    monkeypatch.setattr("engines.envs.suitability._cpu_flags", lambda: {"avx2"})
    shelf.wheel("tiny", "1.0")
    shelf.pin("tiny==1.0")
    return shelf
