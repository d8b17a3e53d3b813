import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import engines.reference
from engines.reference.train import checkpoint as module
from engines.reference.train.checkpoint import config_document, load_initial, write_checkpoint
from engines.reference.train.drafter import Drafter, DrafterConfig
from tests.engines.reference.train.shapes import CONFIG

SHIPPED = Path(engines.reference.__file__).parent / "drafters" / "smollm2-135m-dflash-b8"
RECORD = {
    "status": "finished",
    "target": "Tiny",
    "arguments": {
        "init": None,
        "prompts": None,
        "anchors": 4,
        "conversations": 2,
        "loss": "ce",
        "gamma": 4.0,
        "optimiser": "adamw",
        "lr": 1e-3,
    },
    "versions": {"device": "CPU"},
    "parameters": 1000,
    "data": {"conversations": 3, "response_tokens": 100, "longest_response": 40},
    "steps": 9,
    "train_seconds": 1.0,
    "run_seconds": 2.0,
    "evaluations": [
        {"linear": 1.5, "tree": {7: 1.75}, "position_accuracy": [0.5], "conversations": 2},
        {"linear": 2.5, "tree": {}, "position_accuracy": [0.9], "conversations": 2},
    ],
}


def tiny(layers: int = 2) -> Drafter:
    torch.manual_seed(layers)
    return Drafter(replace(CONFIG, num_layers=layers))


def config_of(raw: dict) -> DrafterConfig:
    return DrafterConfig(
        hidden_size=raw["hidden_size"],
        intermediate_size=raw["intermediate_size"],
        num_layers=raw["num_hidden_layers"],
        num_heads=raw["num_attention_heads"],
        num_kv_heads=raw["num_key_value_heads"],
        head_dim=raw["head_dim"],
        rms_norm_eps=raw["rms_norm_eps"],
        rope_theta=raw["rope_theta"],
        max_positions=raw["max_position_embeddings"],
        vocab_size=raw["vocab_size"],
        block_size=raw["block_size"],
        num_target_layers=raw["num_target_layers"],
        target_layer_ids=tuple(raw["dflash_config"]["target_layer_ids"]),
        mask_token_id=raw["dflash_config"]["mask_token_id"],
    )


def test_the_layout_is_that_of_the_shipped_drafter():
    raw = json.loads((SHIPPED / "config.json").read_text())
    config = config_of(raw)
    written = config_document(config)
    assert written == raw
    assert list(written) == list(raw)
    tensors = load_file(SHIPPED / "model.safetensors")
    built = Drafter(config).state_dict()
    assert {name: tensor.shape for name, tensor in built.items()} == {
        name: tensor.shape for name, tensor in tensors.items()
    }


def test_a_written_folder_holds_bfloat16_weights_card_and_record(tmp_path):
    drafter = tiny()
    write_checkpoint(drafter, tmp_path / "out", RECORD, parts=None)
    tensors = load_file(tmp_path / "out" / "model.safetensors")
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    for name, tensor in drafter.state_dict().items():
        torch.testing.assert_close(tensors[name], tensor.to(torch.bfloat16))
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
        "training.json",
    ]
    card = (tmp_path / "out" / "README.md").read_text()
    # The last evaluation that had trees, not the quick one after it.
    assert "| linear, 4 drafts | 1.50 |" in card
    assert "| best-first tree, budget 7 | 1.75 |" in card
    assert "apache-2.0" in card
    assert "not finished" not in card
    write_checkpoint(drafter, tmp_path / "out", {**RECORD, "status": "running"}, parts=None)
    assert "not finished" in (tmp_path / "out" / "README.md").read_text()


def test_parts_put_together_are_the_files(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PART_BYTES", 10_000)
    write_checkpoint(tiny(), tmp_path / "out", RECORD, parts=tmp_path / "parts")
    pieces = sorted((tmp_path / "parts").glob("model.safetensors.part*"), key=lambda file: int(file.suffix[5:]))
    assert len(pieces) > 2
    assert max(piece.stat().st_size for piece in pieces) <= 10_000
    whole = (tmp_path / "out" / "model.safetensors").read_bytes()
    assert b"".join(piece.read_bytes() for piece in pieces) == whole
    for name in ("config.json", "training.json", "README.md"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()


def test_a_deeper_drafter_starts_as_the_shallower_checkpoint(tmp_path):
    shallow, deep = tiny(2).bfloat16().float(), tiny(3)
    write_checkpoint(shallow, tmp_path, RECORD, parts=None)
    assert load_initial(deep, tmp_path) == 2
    inputs = torch.randn(1, 2, 5, 24), torch.randn(1, 9, 72), torch.tensor([[3, 8]])
    deep.cos, deep.sin = shallow.cos, shallow.sin
    torch.testing.assert_close(deep(*inputs), shallow(*inputs))


def test_a_checkpoint_that_does_not_fit_is_refused(tmp_path):
    write_checkpoint(tiny(3), tmp_path, RECORD, parts=None)
    with pytest.raises(ValueError, match="a drafter of 2 layers has not"):
        load_initial(tiny(2), tmp_path)
    other = Drafter(DrafterConfig(**{**tiny(3).config.__dict__, "target_layer_ids": (0, 1)}))
    with pytest.raises(ValueError, match=r"fc.weight is \[24, 72\], must be \[24, 48\]"):
        load_initial(other, tmp_path)
