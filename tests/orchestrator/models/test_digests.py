"""The digest of a folder: what changes it, what does not, and that it is remembered."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from engines.digests import file_digests
from orchestrator.models import digest

FILES = {"config.json": b"{}", "model.safetensors": b"weights", "nested/tokenizer.json": b"[]"}


@pytest.fixture
def folder(tmp_path: Path, home: Path) -> Path:
    folder = tmp_path / "model"
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def test_known_answer(folder: Path) -> None:
    lines = "".join(f"{hashlib.sha256(FILES[name]).hexdigest()}  {name}\n" for name in sorted(FILES))
    assert digest(folder) == hashlib.sha256(lines.encode()).hexdigest()


def test_place_time_and_hidden_files_do_not_count(folder: Path, tmp_path: Path) -> None:
    before = digest(folder)
    copy = tmp_path / "elsewhere"
    shutil.copytree(folder, copy)
    os.utime(copy / "config.json", (1, 1))
    (copy / ".gitattributes").write_text("x")
    (copy / ".cache").mkdir()
    (copy / ".cache" / "lock").write_text("x")
    (copy / "manifest.json").write_text("{}")
    assert digest(copy) == before


@pytest.mark.parametrize("change", ["content", "name", "addition", "removal"])
def test_every_change_counts(folder: Path, change: str) -> None:
    before = digest(folder)
    if change == "content":
        (folder / "model.safetensors").write_bytes(b"Weights")
        os.utime(folder / "model.safetensors", ns=(0, 12345))
    elif change == "name":
        (folder / "config.json").rename(folder / "config2.json")
    elif change == "addition":
        (folder / "extra").write_bytes(b"")
    else:
        (folder / "nested" / "tokenizer.json").unlink()
    assert digest(folder) != before


def test_links_are_followed(folder: Path, tmp_path: Path) -> None:
    before = digest(folder)
    blob = tmp_path / "blob"
    (folder / "model.safetensors").rename(blob)
    (folder / "model.safetensors").symlink_to(blob)
    assert digest(folder) == before


def test_an_unchanged_file_is_not_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest(folder)
    read: list[str] = []

    def sha256_of(path: Path) -> str:
        read.append(path.name)
        return "new"

    monkeypatch.setattr("engines.digests.sha256_of", sha256_of)
    assert digest(folder) == before
    assert read == []
    os.utime(folder / "config.json", ns=(0, 777))
    assert file_digests(folder)["config.json"] == "new"
    assert read == ["config.json"]


def test_a_damaged_memory_costs_time_only(folder: Path, home: Path) -> None:
    before = digest(folder)
    (memory,) = (home / "digests").iterdir()
    for text in ("", "[]", '{"config.json": 1}', '{"config.json": [[1, 2], "x"]}'):
        memory.write_text(text)
        assert digest(folder) == before


def test_a_home_that_cannot_be_written_costs_time_only(folder: Path, home: Path) -> None:
    home.write_text("a file is in the way")
    assert digest(folder) == digest(folder)
