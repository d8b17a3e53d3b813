"""An EAGLE-3 drafter with random weights that drafts a few common tokens only, so that some drafts are accepted."""

from __future__ import annotations

import json
from pathlib import Path

DRAFT_TOKENS = (",", "Ġthe", ".", "Ġand", "Ċ", "Ġa", "Ġto", "Ġof")


def make_drafter(folder: Path, target: Path, seed: int = 0) -> Path:
    """One layer over the target's layers 2, 15 and 27, in the layout of LlamaForCausalLMEagle3 checkpoints."""
    import torch
    from safetensors.torch import save_file

    config = json.loads((target / "config.json").read_text())
    vocabulary = json.loads((target / "tokenizer.json").read_text())["model"]["vocab"]
    drafted = torch.tensor([vocabulary[token] for token in DRAFT_TOKENS])
    torch.manual_seed(seed)
    hidden, inner, heads, kv_heads = (
        config[name] for name in ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
    )
    head = hidden // heads
    shapes = {
        "fc.weight": (hidden, 3 * hidden),
        "midlayer.self_attn.q_proj.weight": (heads * head, 2 * hidden),
        "midlayer.self_attn.k_proj.weight": (kv_heads * head, 2 * hidden),
        "midlayer.self_attn.v_proj.weight": (kv_heads * head, 2 * hidden),
        "midlayer.self_attn.o_proj.weight": (hidden, heads * head),
        "midlayer.mlp.gate_proj.weight": (inner, hidden),
        "midlayer.mlp.up_proj.weight": (inner, hidden),
        "midlayer.mlp.down_proj.weight": (hidden, inner),
        "lm_head.weight": (len(drafted), hidden),
    }
    weights = {name: 0.02 * torch.randn(shape) for name, shape in shapes.items()}
    norms = ("midlayer.input_layernorm", "midlayer.hidden_norm", "midlayer.post_attention_layernorm", "norm")
    weights |= {f"{name}.weight": torch.ones(hidden) for name in norms}
    kept = torch.zeros(config["vocab_size"], dtype=torch.bool)
    kept[drafted] = True
    drafted = kept.nonzero().flatten()
    weights |= {"d2t": drafted - torch.arange(len(drafted)), "t2d": kept}
    folder.mkdir()
    save_file(weights, folder / "model.safetensors")
    own = {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "draft_vocab_size": len(drafted)}
    own |= {"tie_word_embeddings": False, "dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(config | own))
    return folder
