"""Conversion of a GGUF file made here: a tiny Llama with a tokenizer of a few tokens."""

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer

from engines.reference.model.checkpoint import load_target
from engines.reference.model.config import CheckpointError
from engines.reference.model.gguf import convert_gguf
from tests.engines.reference.families import write_target
from tests.engines.reference.naive import Naive

TOKENS = ["<s>", "</s>", "<unk>", "a", "b", "c", "ab", "abc", "Ġ", "d", "e", "f", "g"]
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(path: Path, folder: Path, architecture: str = "llama") -> None:
    """The model of `folder` as llama.cpp stores it, rotary dimensions as pairs; unquantised, so that it is exact."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(3)
    writer.add_context_length(256)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(48)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(TOKENS)
    writer.add_token_merges(["a b", "ab c"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(2)
    writer.add_chat_template("{{ messages[0]['content'] }}")
    for name, tensor in load_file(folder / "model.safetensors").items():
        stem, _, kind = name.rpartition(".")
        layer, _, part = stem.removeprefix("model.layers.").partition(".")
        stored = f"blk.{layer}.{NAMES[part]}" if stem.startswith("model.layers.") else NAMES[stem]
        heads = {"self_attn.q_proj": 4, "self_attn.k_proj": 2}.get(part)
        if heads:
            tensor = tensor.reshape(heads, 2, 4, 32).transpose(1, 2).reshape(tensor.shape)
        writer.add_tensor(f"{stored}.{kind}", tensor.numpy().astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("tied", [False, True])
def test_the_converted_folder_is_the_same_model(tmp_path: Path, tied: bool) -> None:
    source = write_target(tmp_path / "source", "llama", tie_word_embeddings=tied)
    write_gguf(tmp_path / "tiny.gguf", source)
    convert_gguf(tmp_path / "tiny.gguf", tmp_path / "made" / "tiny")
    made = tmp_path / "made" / "tiny"
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["tiny"]

    before, after = load_file(source / "model.safetensors"), load_file(made / "model.safetensors")
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        assert torch.equal(after[name], tensor.bfloat16())
    config = json.loads((made / "config.json").read_text())
    assert "quantization_config" not in config
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["tie_word_embeddings"] is tied
    assert str(tmp_path) not in (made / "config.json").read_text()
    target = load_target(made, torch.float32)
    assert target.config.eos_token_ids == (1,)
    assert target.config.rope.theta == 10000.0
    assert len(Naive(made).greedy([3], 2)) == 2

    tokenizer = AutoTokenizer.from_pretrained(made)
    assert tokenizer.encode("abc") == [7]
    tokenizer = json.loads((made / "tokenizer_config.json").read_text())
    assert "chat_template" in tokenizer
    assert tokenizer["model_max_length"] == json.loads((made / "config.json").read_text())["max_position_embeddings"]


def test_what_cannot_be_converted_leaves_nothing_behind(tmp_path: Path) -> None:
    out = tmp_path / "made" / "model"
    with pytest.raises(CheckpointError, match="no such file"):
        convert_gguf(tmp_path / "absent.gguf", out)
    (tmp_path / "broken.gguf").write_bytes(b"GGUF but no more")
    with pytest.raises(CheckpointError, match="not a GGUF model"):
        convert_gguf(tmp_path / "broken.gguf", out)
    write_gguf(tmp_path / "other.gguf", write_target(tmp_path / "source", "llama"), "gpt2")
    with pytest.raises(CheckpointError, match=r"other\.gguf: "):
        convert_gguf(tmp_path / "other.gguf", out)
    assert list((tmp_path / "made").iterdir()) == []


def test_an_existing_folder_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    with pytest.raises(CheckpointError, match="already exists"):
        convert_gguf(tmp_path / "any.gguf", tmp_path / "made")
