"""Folders with tiny random models of every family that the engine loads, small enough for brute force."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

TARGETS: dict[str, dict[str, Any]] = {
    "llama": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "tie_word_embeddings": True},
    "llama3-rope": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    },
    "llama-bias": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": True},
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "tie_word_embeddings": True},
    "qwen3": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "head_dim": 16,
        "rope_theta": None,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
    },
    "qwen3-sliding": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "use_sliding_window": True,
        "sliding_window": 5,
        "max_window_layers": 1,
        "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
    },
}


def write_target(folder: Path, family: str, vocabulary: int = 13, seed: int = 0, **changes: Any) -> Path:
    counts: dict[str, Any] = {"num_hidden_layers": 3, "vocab_size": vocabulary, "eos_token_id": 2}
    config = _SHAPE | counts | TARGETS[family] | changes
    draw = torch.Generator().manual_seed(seed)
    hidden = config["hidden_size"]
    tensors = {"model.embed_tokens.weight": _normal(draw, vocabulary, hidden, scale=1.0)}
    tensors["model.norm.weight"] = 1 + _normal(draw, hidden)
    if not config.get("tie_word_embeddings"):
        tensors["lm_head.weight"] = _normal(draw, vocabulary, hidden)
    for layer in range(config["num_hidden_layers"]):
        tensors |= _layer(f"model.layers.{layer}.", config, draw)
        tensors |= _biases(f"model.layers.{layer}.self_attn.", config, draw)
    return write(folder, config, tensors)


def write_drafter(
    folder: Path, vocabulary: int = 13, block: int = 5, seed: int = 1, qk_norm: bool = True, **changes: Any
) -> Path:
    config: dict[str, Any] = _SHAPE | {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3" if qk_norm else "llama",
        "num_hidden_layers": 2,
        "vocab_size": vocabulary,
        "block_size": block,
        "dflash_config": {"mask_token_id": 1, "target_layer_ids": [0, 2]},
    }
    config |= changes
    draw = torch.Generator().manual_seed(seed)
    hidden = config["hidden_size"]
    width = len(config["dflash_config"]["target_layer_ids"]) * hidden
    tensors = {
        "fc.weight": _normal(draw, hidden, width),
        "hidden_norm.weight": 1 + _normal(draw, hidden),
        "norm.weight": 1 + _normal(draw, hidden),
    }
    for layer in range(config["num_hidden_layers"]):
        tensors |= _layer(f"layers.{layer}.", config, draw)
    return write(folder, config, tensors)


def write(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


_SHAPE: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
}


def _normal(draw: torch.Generator, *shape: int, scale: float = 0.3) -> Tensor:
    return torch.randn(*shape, generator=draw) * scale


def _layer(prefix: str, config: dict[str, Any], draw: torch.Generator) -> dict[str, Tensor]:
    hidden, inner, size = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * size, config["num_key_value_heads"] * size
    shapes = {
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    norms = {"input_layernorm": hidden, "post_attention_layernorm": hidden}
    if config["model_type"] == "qwen3":
        norms |= {"self_attn.q_norm": size, "self_attn.k_norm": size}
    tensors = {f"{prefix}{name}.weight": _normal(draw, *shape) for name, shape in shapes.items()}
    return tensors | {f"{prefix}{name}.weight": 1 + _normal(draw, length) for name, length in norms.items()}


def _biases(prefix: str, config: dict[str, Any], draw: torch.Generator) -> dict[str, Tensor]:
    size = config["head_dim"]
    lengths = {
        "q_proj": config["num_attention_heads"] * size,
        "k_proj": config["num_key_value_heads"] * size,
        "v_proj": config["num_key_value_heads"] * size,
        "o_proj": config["hidden_size"],
    }
    names = {"qwen2": ["q_proj", "k_proj", "v_proj"], "llama": list(lengths) if config.get("attention_bias") else []}
    return {f"{prefix}{name}.bias": _normal(draw, lengths[name]) for name in names.get(config["model_type"], [])}
