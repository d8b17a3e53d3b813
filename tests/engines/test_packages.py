import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from engines import packages

RECORD = [
    "lib/__init__.py,sha256=abc,10",
    "lib/part.py,sha256=def,20",
    "../../../bin/lib,sha256=names-its-interpreter,30",
    "lib/__pycache__/part.cpython-311.pyc,,",
    "lib-1.0.dist-info/INSTALLER,sha256=pip,4",
    "lib-1.0.dist-info/RECORD,,",
]


def install(site: Path, record: list[str], name: str = "lib", version: str = "1.0") -> Path:
    place = site / f"{name}-{version}.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (place / "RECORD").write_text("\n".join(record) + "\n")
    return site


def found(monkeypatch: pytest.MonkeyPatch, *sites: Path) -> dict[str, list[str]]:
    monkeypatch.setattr(sys, "path", [str(site) for site in sites])
    return packages.installed()


def test_one_wheel_has_one_digest_wherever_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = found(monkeypatch, install(tmp_path / "a", RECORD))
    moved = [row.replace("names-its", "is-another").replace("pip", "uv") for row in reversed(RECORD)]
    assert found(monkeypatch, install(tmp_path / "b", moved)) == here
    assert here["lib"][0] == "1.0"


@pytest.mark.parametrize("row", ["lib/part.py,sha256=xyz,20", "lib/more.py,sha256=def,20"])
def test_another_file_is_another_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str) -> None:
    here = found(monkeypatch, install(tmp_path / "a", RECORD))
    changed = [row if "part.py,sha" in old else old for old in RECORD]
    assert found(monkeypatch, install(tmp_path / "b", changed))["lib"][1] != here["lib"][1]


def test_of_two_with_one_name_the_one_that_would_be_imported_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites = [install(tmp_path / "a", RECORD, "My.Lib"), install(tmp_path / "b", RECORD, "my_lib", "2.0")]
    assert found(monkeypatch, *sites)["my-lib"][0] == "1.0"
    assert found(monkeypatch, *reversed(sites))["my-lib"][0] == "2.0"


@pytest.mark.parametrize("finder", ["importlib.metadata", "importlib_metadata"])
def test_what_is_damaged_does_not_hide_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finder: str) -> None:
    pytest.importorskip(finder)
    site = install(tmp_path, RECORD)
    (site / "half-1.0.dist-info").mkdir()
    (install(site, RECORD, "bare") / "bare-1.0.dist-info" / "RECORD").unlink()
    assert set(found(monkeypatch, site)) == {"bare", "lib"}


@pytest.mark.parametrize("how", [["-P", packages.__file__], ["-I", "-c", Path(packages.__file__).read_text()]])
def test_a_script_says_the_same_as_the_function(how: list[str]) -> None:
    done = subprocess.run([sys.executable, *how], capture_output=True, text=True, check=True, timeout=60)
    told = json.loads(done.stdout)
    assert told["python"] == platform.python_version()
    assert told["packages"]["orjson"] == packages.installed()["orjson"]
