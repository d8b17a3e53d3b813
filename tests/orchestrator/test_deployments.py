"""Settings that can never start are refused before anything is started."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from engines.reference.adapter import ReferenceEngine
from orchestrator.deployments import make_deployments
from orchestrator.errors import InputError
from orchestrator.models import ResolvedModel
from orchestrator.spec import SweepSpec
from tests.orchestrator.sweeps import fake_sweep

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 300,
    "max_position_embeddings": 512,
}


@pytest.fixture(autouse=True)
def _software(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReferenceEngine, "software", lambda *_: "tests")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


def deploy(target: Path, **engine: Any) -> Any:
    sweep = copy.deepcopy(fake_sweep())
    settings = {"dtype": "float32", "max_context": 512} | engine
    sweep["profiles"]["local"] |= {"engine": "reference", "engines": {"reference": settings}}
    return make_deployments(SweepSpec.model_validate(sweep), "local", lambda ref: ResolvedModel(ref, target, "0" * 64))


def test_settings_that_fit_are_taken(target: Path) -> None:
    assert deploy(target)["reference"].max_context == 512
    assert deploy(target, dtype="bfloat16", max_context=2)["reference"].dtype == "bfloat16"


@pytest.mark.parametrize(
    ("engine", "complaint"),
    [
        ({"dtype": "float16"}, "engine reference has no dtype float16; it has float32, bfloat16"),
        ({"max_context": 513}, "max_context must lie in 2..512, the positions of tiny, got 513"),
        ({"max_context": 1}, "max_context must lie in 2..512, the positions of tiny, got 1"),
    ],
)
def test_settings_that_can_never_start_are_bad_input(target: Path, engine: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError) as caught:
        deploy(target, **engine)
    assert str(caught.value) == f"arm 'autoregressive': {complaint}"


@pytest.mark.parametrize("content", ["{", "[]", '{"architectures": ["MambaForCausalLM"]}'])
def test_a_target_that_can_never_be_loaded_is_bad_input(target: Path, content: str) -> None:
    (target / "config.json").write_text(content)
    with pytest.raises(InputError, match="tiny") as caught:
        deploy(target)
    assert "\n" not in str(caught.value)


def test_of_a_target_that_is_not_fetched_nothing_is_known(tmp_path: Path) -> None:
    assert deploy(tmp_path / "not-fetched", max_context=100_000)["reference"].max_context == 100_000
