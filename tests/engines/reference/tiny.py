"""Model folders with tiny random weights: a Llama target and a DFlash drafter that fits it."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from tests.engines.reference.scripted import EOS, TEMPLATE, VOCABULARY, byte_backend

HIDDEN, INNER, HEADS, KV_HEADS, HEAD = 32, 64, 4, 2, 8
BLOCK = 4
_SHAPE = {
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
}


def write_target(folder: Path) -> Path:
    draw = torch.Generator().manual_seed(1)
    tensors = {"model.embed_tokens.weight": _normal(draw, VOCABULARY, HIDDEN), "model.norm.weight": torch.ones(HIDDEN)}
    for layer in range(2):
        tensors |= _layer(f"model.layers.{layer}.", draw)
    config = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "eos_token_id": EOS}
    _write(folder, config | {"tie_word_embeddings": True}, tensors)
    byte_backend().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE, "eos_token": "<eos>"}))
    return folder


def write_drafter(folder: Path) -> Path:
    draw = torch.Generator().manual_seed(2)
    tensors = {
        "fc.weight": _normal(draw, HIDDEN, 2 * HIDDEN),
        "hidden_norm.weight": torch.ones(HIDDEN),
        "norm.weight": torch.ones(HIDDEN),
    } | _layer("layers.0.", draw)
    dflash = {"mask_token_id": 0, "target_layer_ids": [0, 1]}
    config = {"architectures": ["DFlashDraftModel"], "num_hidden_layers": 1, "block_size": BLOCK}
    _write(folder, config | {"dflash_config": dflash}, tensors)
    return folder


def _layer(prefix: str, draw: torch.Generator) -> dict[str, torch.Tensor]:
    queries, keys = HEADS * HEAD, KV_HEADS * HEAD
    shapes = {
        "self_attn.q_proj": (queries, HIDDEN),
        "self_attn.k_proj": (keys, HIDDEN),
        "self_attn.v_proj": (keys, HIDDEN),
        "self_attn.o_proj": (HIDDEN, queries),
        "mlp.gate_proj": (INNER, HIDDEN),
        "mlp.up_proj": (INNER, HIDDEN),
        "mlp.down_proj": (HIDDEN, INNER),
    }
    weights = {f"{prefix}{name}.weight": _normal(draw, *shape) for name, shape in shapes.items()}
    norms = ("input_layernorm", "post_attention_layernorm")
    return weights | {f"{prefix}{name}.weight": torch.ones(HIDDEN) for name in norms}


def _normal(draw: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=draw) * 0.2


def _write(folder: Path, config: dict[str, object], tensors: dict[str, torch.Tensor]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(_SHAPE | config))
    save_file(tensors, folder / "model.safetensors")
