"""Models of real sizes without weights: configurations that SGLang fills with random numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

QWEN3: dict[str, Any] = {
    "num_attention_heads": 32,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "attention_bias": False,
    "torch_dtype": "bfloat16",
}
"""What the models of the family have in common."""
DENSE = QWEN3 | {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_key_value_heads": 8,
}
SHAPES: dict[str, dict[str, Any]] = {
    "qwen3-8b": DENSE,
    "qwen3-30b-a3b": QWEN3
    | {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "num_hidden_layers": 48,
        "num_key_value_heads": 4,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    },
    "small": DENSE
    | {
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 8,
        "num_attention_heads": 16,
        "vocab_size": 32768,
    },
}
"""`small` is for trying things out, and for tensor parallelism, which SmolLM2's nine heads do not allow."""
BLOCK, DRAFT_LAYERS = 16, 5


def folders(work: Path, shape: str) -> tuple[Path, Path]:
    """Configurations of a target and of a DFlash drafter of five layers and block 16, written below `work`."""
    config = SHAPES[shape]
    layers = config["num_hidden_layers"]
    taps = [round(1 + i * (layers - 4) / (DRAFT_LAYERS - 1)) for i in range(DRAFT_LAYERS)]
    same = ("hidden_size", "num_attention_heads", "num_key_value_heads", "vocab_size")
    own = {
        "architectures": ["DFlashDraftModel"],
        "num_hidden_layers": DRAFT_LAYERS,
        "block_size": BLOCK,
        "num_target_layers": layers,
        "dflash_config": {"mask_token_id": config["vocab_size"] - 1, "target_layer_ids": taps},
    }
    found = work / shape, work / f"{shape}-dflash"
    for folder, words in zip(found, (config, DENSE | {name: config[name] for name in same} | own), strict=True):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(words, indent=1))
    return found
