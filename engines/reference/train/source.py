"""Reads a target from a Hugging Face folder or a GGUF file: sizes, weights, tokenizer."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engines.reference.train.target import TargetConfig

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")


@dataclass(frozen=True)
class Source:
    """A target on the CPU, as read. `name` is what the model card calls it."""

    name: str
    config: TargetConfig
    weights: Mapping[str, Tensor]
    tokenizer: Any


def read_source(path: Path) -> Source:
    """`path`: a folder with config.json, *.safetensors and a tokenizer, or a .gguf file of the llama architecture.

    Raises ValueError in one line for anything that the trainer's forward would compute wrongly.
    """
    if path.suffix == ".gguf" and path.is_file():
        return _from_gguf(path)
    if (path / "config.json").is_file():
        return _from_folder(path)
    raise ValueError(f"target {path}: must be a folder with config.json, or a .gguf file")


def _from_folder(folder: Path) -> Source:
    from safetensors.torch import load_file
    from transformers import AutoTokenizer

    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ValueError(f"target {folder}: has no *.safetensors")
    config = _folder_config(folder)
    weights = {name: tensor for file in files for name, tensor in load_file(file).items()}
    return Source(folder.resolve().name, config, weights, AutoTokenizer.from_pretrained(str(folder)))


def _folder_config(folder: Path) -> TargetConfig:
    raw = json.loads((folder / "config.json").read_text())
    if raw.get("model_type") not in FAMILIES:
        raise ValueError(f"target {folder}: model_type {raw.get('model_type')!r}, allowed are {', '.join(FAMILIES)}")
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if rope.get("rope_type", rope.get("type", "default")) != "default":
        raise ValueError(f"target {folder}: scaled rotary embeddings are not supported, only rope_type default")
    if raw.get("use_sliding_window", raw.get("model_type") == "mistral") and raw.get("sliding_window"):
        raise ValueError(f"target {folder}: sliding-window attention is not supported")
    heads = raw["num_attention_heads"]
    return TargetConfig(
        hidden_size=raw["hidden_size"],
        intermediate_size=raw["intermediate_size"],
        num_layers=raw["num_hidden_layers"],
        num_heads=heads,
        num_kv_heads=raw.get("num_key_value_heads") or heads,
        head_dim=raw.get("head_dim") or raw["hidden_size"] // heads,
        vocab_size=raw["vocab_size"],
        rms_norm_eps=raw["rms_norm_eps"],
        rope_theta=float(rope.get("rope_theta") or raw.get("rope_theta") or 10_000.0),
        max_positions=raw["max_position_embeddings"],
        stop_ids=_stop_ids(folder, raw),
    )


def _stop_ids(folder: Path, raw: Mapping[str, Any]) -> tuple[int, ...]:
    generation = folder / "generation_config.json"
    sources = [raw, json.loads(generation.read_text())] if generation.is_file() else [raw]
    found: set[int] = set()
    for source in sources:
        value = source.get("eos_token_id")
        found.update([value] if isinstance(value, int) else value or [])
    if not found:
        raise ValueError(f"target {folder}: config.json names no eos_token_id")
    return tuple(sorted(found))


def _from_gguf(file: Path) -> Source:
    from gguf import GGUFReader
    from gguf.quants import dequantize
    from transformers import AutoTokenizer

    reader = GGUFReader(file)
    fields = {
        name: field.contents() for name, field in reader.fields.items() if not name.startswith("tokenizer.ggml.t")
    }
    if fields["general.architecture"] != "llama":
        raise ValueError(f"target {file}: GGUF architecture {fields['general.architecture']!r}, allowed is llama")
    if any(name.startswith("llama.rope.scaling") for name in fields):
        raise ValueError(f"target {file}: scaled rotary embeddings are not supported")
    config = _gguf_config(fields)
    raw = {tensor.name: torch.tensor(dequantize(tensor.data, tensor.tensor_type)) for tensor in reader.tensors}
    if "rope_freqs.weight" in raw:
        raise ValueError(f"target {file}: scaled rotary embeddings are not supported")
    weights = {_hub_name(name): _unpermuted(name, tensor, config) for name, tensor in raw.items()}
    tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    return Source(file.stem, config, weights, tokenizer)


def _gguf_config(fields: Mapping[str, Any]) -> TargetConfig:
    heads, hidden = fields["llama.attention.head_count"], fields["llama.embedding_length"]
    return TargetConfig(
        hidden_size=hidden,
        intermediate_size=fields["llama.feed_forward_length"],
        num_layers=fields["llama.block_count"],
        num_heads=heads,
        num_kv_heads=fields.get("llama.attention.head_count_kv", heads),
        head_dim=fields.get("llama.attention.key_length", hidden // heads),
        vocab_size=fields["llama.vocab_size"],
        # Stored as float32: 1e-05 comes back as 9.99999974e-06.
        rms_norm_eps=float(f"{fields['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        rope_theta=float(fields.get("llama.rope.freq_base", 10_000.0)),
        max_positions=fields["llama.context_length"],
        stop_ids=(int(fields["tokenizer.ggml.eos_token_id"]),),
    )


GGUF_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}


def _hub_name(name: str) -> str:
    *layer, part, kind = name.split(".")
    prefix = f"model.layers.{layer[1]}." if layer else ""
    return f"{prefix}{GGUF_NAMES[part]}.{kind}"


def _unpermuted(name: str, tensor: Tensor, config: TargetConfig) -> Tensor:
    """GGUF interleaves the rotary halves of query and key rows; the half-split layout undoes that."""
    if ".attn_q." not in name and ".attn_k." not in name:
        return tensor
    heads = config.num_heads if ".attn_q." in name else config.num_kv_heads
    return tensor.reshape(heads, config.head_dim // 2, 2, -1).transpose(1, 2).reshape(tensor.shape)
