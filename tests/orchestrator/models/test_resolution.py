"""References to models: shipped, local, on the hub, and wrong ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.errors import ModelMissingError
from orchestrator.models import ModelError, State, fetch, known, resolve

SNAPSHOT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def folder(tmp_path: Path, home: Path) -> Path:
    return _model(tmp_path / "my-model")


@pytest.fixture
def hub_cache(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub's client, with the hub out of reach."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


def test_the_shipped_drafter_is_here(home: Path) -> None:
    model = resolve("smollm2-135m-dflash-b8")
    config = json.loads((model.path / "config.json").read_text())
    assert config["block_size"] == 8
    assert model == fetch("smollm2-135m-dflash-b8")
    entry = next(entry for entry in known() if entry.name == model.name)
    assert entry.state is State.PRESENT
    assert entry.size > 1_000_000


def test_a_local_folder(folder: Path) -> None:
    model = resolve(str(folder))
    assert (model.name, model.path) == (str(folder), folder)
    assert model == fetch(str(folder))


def test_a_relative_folder_becomes_absolute(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    assert resolve("my-model").path == folder


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("config.json", r"my-model: not a model folder: it holds no config.json$"),
        ("b.safetensors", r"my-model: incomplete: b.safetensors is listed in model.safetensors.index.json"),
    ],
)
def test_a_folder_that_lacks_something(folder: Path, file: str, message: str) -> None:
    (folder / file).unlink()
    with pytest.raises(ModelError, match=message):
        resolve(str(folder))


def test_a_broken_index(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(ModelError, match=r"index\.json: not a safetensors index"):
        resolve(str(folder))


@pytest.mark.parametrize("ref", ["smollm3", "./absent", "/absent/model", "a/b/c", "org/name@"])
def test_an_unknown_reference_names_what_is_allowed(home: Path, ref: str) -> None:
    for ask in (resolve, fetch):
        with pytest.raises(ModelError, match=r"no such model; allowed: smollm2-135m, .*org/name$"):
            ask(ref)


def test_a_hub_model_that_is_not_cached(hub_cache: Path) -> None:
    with pytest.raises(ModelMissingError, match=r"orchestrate models fetch org/name@main$"):
        resolve("org/name@main")
    with pytest.raises(ModelError, match=r"^org/name: offline: the Hugging Face hub was not reached"):
        fetch("org/name")


def test_a_hub_model_in_the_cache(hub_cache: Path) -> None:
    snapshot = _cached(hub_cache)
    model = resolve("org/name")
    assert (model.name, model.path) == ("org/name", snapshot)
    assert resolve(f"org/name@{SNAPSHOT}").digest == model.digest


def test_half_a_hub_model_is_missing(hub_cache: Path) -> None:
    (_cached(hub_cache) / "b.safetensors").unlink()
    with pytest.raises(ModelMissingError, match=r"orchestrate models fetch org/name$"):
        resolve("org/name")


def test_a_hub_model_without_the_client(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelError, match="pip install huggingface-hub"):
        resolve("org/name")


def test_nothing_heavy_is_imported() -> None:
    heavy = "{'torch', 'transformers', 'huggingface_hub', 'pyarrow', 'pandas', 'ray'}"
    code = f"import sys, orchestrator.models, orchestrator.prompts; print(*({heavy} & set(sys.modules)))"
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert output.strip() == ""


def _model(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "a.safetensors").write_bytes(b"a")
    (folder / "b.safetensors").write_bytes(b"b")
    index = {"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def _cached(cache: Path) -> Path:
    """A snapshot as the hub's client lays it out."""
    repository = cache / "models--org--name"
    snapshot = _model(repository / "snapshots" / SNAPSHOT)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(SNAPSHOT)
    return snapshot
