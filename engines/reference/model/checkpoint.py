"""Loading targets and drafters from Hugging Face folders."""

from pathlib import Path

import torch
from torch import Tensor

from engines.reference.model.config import (
    CheckpointError,
    DrafterConfig,
    ModelConfig,
    read_drafter_config,
    read_target_config,
)
from engines.reference.model.drafter import Drafter, DrafterWeights
from engines.reference.model.linear import Linear
from engines.reference.model.target import Target, TargetWeights
from engines.reference.model.tensors import TensorStore, load_layer


def load_target(folder: Path, dtype: torch.dtype, device: str | torch.device = "cpu") -> Target:
    """A dense Llama, Qwen2 or Qwen3 model. Raises CheckpointError."""
    config = read_target_config(folder)
    store = TensorStore(folder, dtype, torch.device(device))
    embedding = store.take("model.embed_tokens.weight", config.vocab_size, config.hidden_size)
    head = store.take_optional("lm_head.weight", config.vocab_size, config.hidden_size)
    if head is None and not config.tied_head:
        raise CheckpointError(f"{folder}: tensor lm_head.weight is missing and tie_word_embeddings is false")
    weights = TargetWeights(
        embedding=embedding,
        layers=tuple(load_layer(store, f"model.layers.{index}.", config) for index in range(config.num_layers)),
        norm=store.take("model.norm.weight", config.hidden_size),
        head=Linear(embedding if head is None or config.tied_head else head),
    )
    store.finish()
    return Target(config, weights)


def load_drafter(folder: Path, target: Target) -> Drafter:
    """A DFlash drafter in the target's dtype and on its device. Raises CheckpointError, also where the two differ."""
    config = read_drafter_config(folder)
    check_pair(config, target.config, folder)
    model = config.model
    store = TensorStore(folder, target.dtype, target.device)
    weights = DrafterWeights(
        layers=tuple(load_layer(store, f"layers.{index}.", model) for index in range(model.num_layers)),
        features=Linear(_feature_projection(store, config, target.config)),
        feature_norm=store.take("hidden_norm.weight", model.hidden_size),
        norm=store.take("norm.weight", model.hidden_size),
        context_kv=_context_projection(store, model),
        context_k_norm=_context_k_norm(store, model),
    )
    store.finish()
    return Drafter(config, weights, target)


def check_pair(drafter: DrafterConfig, target: ModelConfig, folder: Path) -> None:
    """CheckpointError naming the first field in which a drafter does not fit its target, and both values."""
    problem = _mismatch(drafter, target)
    if problem:
        raise CheckpointError(f"drafter {folder}: {problem}")


def _mismatch(drafter: DrafterConfig, target: ModelConfig) -> str | None:
    model, mask, layers = drafter.model, drafter.mask_token_id, drafter.target_layer_ids
    if model.hidden_size != target.hidden_size:
        return f"hidden_size {model.hidden_size} differs from the target's {target.hidden_size}"
    if model.vocab_size != target.vocab_size:
        return f"vocab_size {model.vocab_size} differs from the target's {target.vocab_size}"
    if not layers or min(layers) < 0 or max(layers) >= target.num_layers:
        return f"target_layer_ids {list(layers)} must name layers of the target, which has 0..{target.num_layers - 1}"
    if not 0 <= mask < target.vocab_size:
        return f"mask_token_id {mask} must lie in the target's vocabulary, 0..{target.vocab_size - 1}"
    if drafter.block_size < 2:
        return f"block_size {drafter.block_size} drafts nothing: at least 2 is needed"
    return None


def _feature_projection(store: TensorStore, config: DrafterConfig, target: ModelConfig) -> Tensor:
    width = len(config.target_layer_ids) * target.hidden_size
    shape = store.shape("fc.weight")
    if shape != (config.model.hidden_size, width):
        raise CheckpointError(
            f"drafter {store.folder}: fc.weight has shape {list(shape)}, but {len(config.target_layer_ids)} "
            f"target_layer_ids of hidden size {target.hidden_size} need [{config.model.hidden_size}, {width}]"
        )
    return store.take("fc.weight", *shape)


def _context_projection(store: TensorStore, model: ModelConfig) -> Linear:
    """Key and value projections of all layers as one, for KV injection."""
    keys = model.num_kv_heads * model.head_dim
    names = [f"layers.{layer}.self_attn.{kind}_proj" for layer in range(model.num_layers) for kind in "kv"]
    weight = torch.cat([store.take(f"{name}.weight", keys, model.hidden_size) for name in names])
    biases = [store.take_optional(f"{name}.bias", keys) for name in names]
    present = [bias for bias in biases if bias is not None]
    return Linear(weight, torch.cat(present) if len(present) == len(names) else None)


def _context_k_norm(store: TensorStore, model: ModelConfig) -> Tensor | None:
    """[layers, 1, head_dim]."""
    names = [f"layers.{layer}.self_attn.k_norm.weight" for layer in range(model.num_layers)]
    norms = [store.take_optional(name, model.head_dim) for name in names]
    present = [norm for norm in norms if norm is not None]
    if present and len(present) != len(names):
        raise CheckpointError(f"{store.folder}: k_norm.weight is in {len(present)} of {len(names)} layers")
    return torch.stack(present).unsqueeze(1) if present else None
