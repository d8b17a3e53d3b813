import gguf
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from engines.reference.train import source as module
from engines.reference.train.source import read_source


def test_a_folder_gives_sizes_stop_tokens_and_weights(source):
    config = source.config
    assert (config.hidden_size, config.num_layers, config.num_kv_heads, config.head_dim) == (32, 5, 2, 8)
    assert config.stop_ids == (2,)
    assert source.weights["model.embed_tokens.weight"].shape == (259, 32)
    assert source.tokenizer.decode(source.tokenizer("ab")["input_ids"]) == "ab"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt2"}, "model_type 'gpt2', allowed are"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4}}, "scaled rotary"),
        ({"model_type": "mistral", "sliding_window": 128}, "sliding-window"),
        ({"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 128}, "sliding-window"),
        ({"eos_token_id": None}, "names no eos_token_id"),
    ],
)
def test_what_the_forward_cannot_compute_is_refused(edit_config, changes, message):
    with pytest.raises(ValueError, match=message):
        module._folder_config(edit_config(**changes))


def test_a_path_that_is_no_model_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"must be a folder with config.json, or a .gguf file"):
        read_source(tmp_path / "nothing")


def interleaved(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Query and key rows in GGUF's order: row 2i is the half-split layout's row i, row 2i + 1 its row i + half."""
    half = weight.shape[0] // heads // 2
    per_head = weight.view(heads, 2, half, -1)
    return torch.stack([per_head[:, 0], per_head[:, 1]], dim=2).reshape(weight.shape)


def test_a_gguf_file_gives_the_weights_of_the_model_it_was_made_from(tmp_path, monkeypatch):
    torch.manual_seed(0)
    sizes = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, "vocab_size": 32}
    model = LlamaForCausalLM(LlamaConfig(**sizes, hidden_size=32, intermediate_size=48, tie_word_embeddings=True))
    weights = dict(model.model.state_dict())
    file = tmp_path / "tiny.gguf"
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_block_count(2)
    writer.add_context_length(128)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(48)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(32)
    writer.add_eos_token_id(2)
    names = {hub: name for name, hub in module.GGUF_NAMES.items()}
    for name, tensor in weights.items():
        layer, part = "", f"model.{name.removesuffix('.weight')}"
        if name.startswith("layers."):
            _, index, part = name.removesuffix(".weight").split(".", 2)
            layer = f"blk.{index}."
        if part.endswith(("q_proj", "k_proj")):
            tensor = interleaved(tensor, 4 if "q_proj" in part else 2)
        writer.add_tensor(f"{layer}{names[part]}.weight", tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", lambda *_, **__: "tokenizer")

    source = read_source(file)
    assert (source.name, source.tokenizer, source.config.rms_norm_eps) == ("tiny", "tokenizer", 1e-5)
    assert source.config.stop_ids == (2,)
    assert {f"model.{name}" for name in weights} == set(source.weights)
    for name, tensor in weights.items():
        torch.testing.assert_close(source.weights[f"model.{name}"], tensor, msg=name)
