import json
from pathlib import Path
from typing import Any

import pytest

from engines.reference.model.config import CheckpointError, ModelConfig, read_drafter_config, read_target_config

PLAIN: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 100,
}


def read(folder: Path, generation: dict[str, Any] | None = None, **changes: Any) -> ModelConfig:
    settings = {key: value for key, value in (PLAIN | changes).items() if value is not None}
    (folder / "config.json").write_text(json.dumps(settings))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    return read_target_config(folder)


@pytest.mark.parametrize(
    "places",
    [
        {"rope_theta": 7.0},
        {"rope_parameters": {"rope_theta": 7.0, "rope_type": "default"}},
        {"rope_theta": 7.0, "rope_scaling": {"type": "default"}},
    ],
)
def test_rope_theta_is_found_in_every_place(tmp_path: Path, places: dict[str, Any]) -> None:
    assert read(tmp_path, **places).rope.theta == 7.0


@pytest.mark.parametrize("place", ["rope_parameters", "rope_scaling"])
def test_llama3_scaling_is_read(tmp_path: Path, place: str) -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    rope = read(tmp_path, rope_theta=5e5, **{place: scaling}).rope
    assert rope.theta == 5e5
    assert rope.scaling is not None
    assert rope.scaling.original_max_position_embeddings == 8192


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope type yarn is not supported"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor 0.5"),
        ({"architectures": ["GPT2LMHeadModel"]}, "architecture GPT2LMHeadModel is not supported"),
        ({"hidden_act": "gelu"}, "hidden_act gelu is not supported"),
        ({"num_key_value_heads": 3}, "num_attention_heads 8 is no multiple of num_key_value_heads 3"),
        ({"vocab_size": None}, "config.json lacks vocab_size"),
        ({"layer_types": ["full_attention"]}, "layer_types must name 4 times"),
        ({"layer_types": ["sliding_attention"] * 4}, "config.json lacks sliding_window"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "config.json lacks factor"),
    ],
)
def test_what_cannot_be_loaded_is_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message) as caught:
        read(tmp_path, **changes)
    assert "\n" not in str(caught.value)


def test_sliding_layers_by_type_and_by_qwens_rule(tmp_path: Path) -> None:
    types = ["full_attention", "sliding_attention"] * 2
    assert read(tmp_path, layer_types=types, sliding_window=9).windows == (None, 9, None, 9)
    by_rule: dict[str, Any] = {"use_sliding_window": True, "max_window_layers": 3, "sliding_window": 9}
    assert read(tmp_path, **by_rule).windows == (None, None, None, 9)
    assert read(tmp_path, sliding_window=9, use_sliding_window=False).windows == (None,) * 4


def test_generation_config_decides_the_end_of_text(tmp_path: Path) -> None:
    assert read(tmp_path).eos_token_ids == ()
    assert read(tmp_path, eos_token_id=3).eos_token_ids == (3,)
    assert read(tmp_path, generation={"eos_token_id": [4, 5]}, eos_token_id=3).eos_token_ids == (4, 5)


def test_a_drafter_needs_its_own_architecture_and_fields(tmp_path: Path) -> None:
    read(tmp_path)
    with pytest.raises(CheckpointError, match="Qwen3ForCausalLM is not a drafter"):
        read_drafter_config(tmp_path)
    settings = PLAIN | {"architectures": ["DFlashDraftModel"], "block_size": 8, "dflash_config": {"mask_token_id": 0}}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(CheckpointError, match="lacks target_layer_ids"):
        read_drafter_config(tmp_path)


def test_a_folder_without_config_or_with_broken_json(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such file"):
        read_target_config(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match="not JSON"):
        read_target_config(tmp_path)
