"""Small environments made of wheels that the tests write, so that pip needs no index."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from engines.envs import ENVIRONMENTS, Environment

BACKEND = """\
import pathlib, zipfile
def build_editable(folder, config_settings=None, metadata_directory=None):
    info, name = "ours-1.0.dist-info", "ours-1.0-py3-none-any.whl"
    files = {
        "ours.pth": str(pathlib.Path.cwd()),
        f"{info}/METADATA": "Metadata-Version: 2.1\\nName: ours\\nVersion: 1.0\\nRequires-Dist: absent\\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\\nGenerator: tests\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\\n" for path in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(pathlib.Path(folder, name), "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return name
"""


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

    def project(self) -> Path:
        """A distribution `ours` as source, which builds itself without setuptools."""
        folder = self.folder / "ours"
        folder.mkdir()
        build = 'requires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        (folder / "pyproject.toml").write_text(f"[build-system]\n{build}")
        (folder / "backend.py").write_text(BACKEND)
        (folder / "ours.py").write_text("VERSION = 'first'\n")
        return folder

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
