"""DFlash checkpoints in z-lab's layout: config.json, model.safetensors, and what was measured beside them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save

from engines.reference.train.card import model_card
from engines.reference.train.drafter import Drafter, DrafterConfig

PART_BYTES = 15 * 1024 * 1024


def config_document(config: DrafterConfig) -> dict[str, Any]:
    """config.json as z-lab's checkpoints have it, and SGLang and vLLM read it."""
    return {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope_theta,
        "max_position_embeddings": config.max_positions,
        "vocab_size": config.vocab_size,
        "attention_bias": False,
        "tie_word_embeddings": False,
        "block_size": config.block_size,
        "num_target_layers": config.num_target_layers,
        "dflash_config": {
            "mask_token_id": config.mask_token_id,
            "target_layer_ids": list(config.target_layer_ids),
        },
        "dtype": "bfloat16",
        "layer_types": ["full_attention"] * config.num_layers,
        "use_sliding_window": False,
    }


def write_checkpoint(drafter: Drafter, folder: Path, record: Mapping[str, Any], parts: Path | None) -> None:
    """Writes the whole folder, each file replaced in one move, so that a killed run leaves the one before.

    `parts` also gets a copy of every file, cut into pieces of at most 15 MiB named `NAME.part0`, `NAME.part1`, ...
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: tensor.detach().to("cpu", torch.bfloat16).contiguous() for name, tensor in drafter.state_dict().items()
    }
    files = {
        "model.safetensors": save(tensors),
        "config.json": json.dumps(config_document(drafter.config), indent=1).encode(),
        "training.json": (json.dumps(record, indent=1) + "\n").encode(),
        "README.md": model_card(folder.resolve().name, drafter.config, record).encode(),
    }
    for name, content in files.items():
        _replace(folder / name, content)
    if parts is not None:
        _write_parts(files, parts)


def _replace(file: Path, content: bytes) -> None:
    draft = file.with_name(file.name + ".tmp")
    draft.write_bytes(content)
    draft.replace(file)


def _write_parts(files: Mapping[str, bytes], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        if len(content) <= PART_BYTES:
            _replace(folder / name, content)
            continue
        for number, start in enumerate(range(0, len(content), PART_BYTES)):
            _replace(folder / f"{name}.part{number}", content[start : start + PART_BYTES])


def load_initial(drafter: Drafter, folder: Path) -> int:
    """Loads a checkpoint's weights as a starting point; returns how many of the drafter's layers it had.

    Layers beyond it start as the identity. Raises ValueError where shapes differ or the checkpoint has more layers.
    """
    found = load_file(folder / "model.safetensors")
    wanted = drafter.state_dict()
    extra = sorted(set(found) - set(wanted))
    if extra:
        raise ValueError(f"{folder}: has {extra[0]}, which a drafter of {drafter.config.num_layers} layers has not")
    for name, tensor in found.items():
        if tensor.shape != wanted[name].shape:
            raise ValueError(f"{folder}: {name} is {list(tensor.shape)}, must be {list(wanted[name].shape)}")
    missing = sorted(set(wanted) - set(found))
    kept = len({name.split(".")[1] for name in found if name.startswith("layers.")})
    if any(not name.startswith("layers.") or int(name.split(".")[1]) < kept for name in missing):
        raise ValueError(f"{folder}: lacks {missing[0]}")
    drafter.load_state_dict(found, strict=False)
    with torch.no_grad():
        for name, parameter in drafter.named_parameters():
            if name in missing and name.endswith(("o_proj.weight", "down_proj.weight")):
                parameter.zero_()
    return kept
