"""Reading a checkpoint's safetensors, sharded or not, and assembling decoder layers from them."""

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engines.reference.model.config import CheckpointError, ModelConfig
from engines.reference.model.layers import LayerWeights, group_major
from engines.reference.model.linear import Linear

_UNUSED = ("rotary_emb.inv_freq",)


class TensorStore:
    """The tensors of a folder by name. Every tensor must be taken: a leftover belongs to a model we do not know."""

    def __init__(self, folder: Path, dtype: torch.dtype, device: torch.device) -> None:
        self.folder = folder
        self._dtype, self._device = dtype, device
        self._tensors: dict[str, Tensor] = {}
        self._taken: set[str] = set()
        for path in _files(folder):
            self._tensors.update(_read(path))

    def take(self, name: str, *shape: int) -> Tensor:
        """The tensor `name` in the store's dtype. CheckpointError where it is absent or has another shape."""
        tensor = self.take_optional(name, *shape)
        if tensor is None:
            raise CheckpointError(f"{self.folder}: tensor {name} is missing")
        return tensor

    def take_optional(self, name: str, *shape: int) -> Tensor | None:
        tensor = self._tensors.get(name)
        if tensor is None:
            return None
        self._taken.add(name)
        if tuple(tensor.shape) != shape:
            raise CheckpointError(
                f"{self.folder}: {name} has shape {list(tensor.shape)}, config.json implies {list(shape)}"
            )
        return tensor.to(self._device, self._dtype)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape that the file gives the tensor `name`."""
        if name not in self._tensors:
            raise CheckpointError(f"{self.folder}: tensor {name} is missing")
        return tuple(self._tensors[name].shape)

    def finish(self) -> None:
        """CheckpointError where tensors were not taken."""
        left = sorted(name for name in self._tensors if name not in self._taken and not name.endswith(_UNUSED))
        if left:
            raise CheckpointError(f"{self.folder}: {len(left)} tensors have no place in this model, such as {left[0]}")


def load_layer(store: TensorStore, prefix: str, model: ModelConfig) -> LayerWeights:
    """One decoder layer under `prefix`; biases and q/k norms are used where the file has them."""
    hidden, inner, size = model.hidden_size, model.intermediate_size, model.head_dim
    queries, keys = model.num_heads * size, model.num_kv_heads * size
    attention = f"{prefix}self_attn."
    q = group_major(store.take(f"{attention}q_proj.weight", queries, hidden), model)
    k = store.take(f"{attention}k_proj.weight", keys, hidden)
    v = store.take(f"{attention}v_proj.weight", keys, hidden)
    output = group_major(store.take(f"{attention}o_proj.weight", hidden, queries).T, model).T.contiguous()
    gate = store.take(f"{prefix}mlp.gate_proj.weight", inner, hidden)
    up = store.take(f"{prefix}mlp.up_proj.weight", inner, hidden)
    return LayerWeights(
        input_norm=store.take(f"{prefix}input_layernorm.weight", hidden),
        qkv=Linear(torch.cat([q, k, v]), _qkv_bias(store, attention, model)),
        qk_norm=_qk_norm(store, attention, model),
        output=Linear(output, store.take_optional(f"{attention}o_proj.bias", hidden)),
        post_norm=store.take(f"{prefix}post_attention_layernorm.weight", hidden),
        gate_up=Linear(torch.cat([gate, up])),
        down=Linear(store.take(f"{prefix}mlp.down_proj.weight", hidden, inner)),
    )


def _qkv_bias(store: TensorStore, prefix: str, model: ModelConfig) -> Tensor | None:
    keys = model.num_kv_heads * model.head_dim
    q = store.take_optional(f"{prefix}q_proj.bias", model.num_heads * model.head_dim)
    if q is None:
        return None
    return torch.cat([group_major(q, model), *(store.take(f"{prefix}{name}_proj.bias", keys) for name in "kv")])


def _qk_norm(store: TensorStore, prefix: str, model: ModelConfig) -> Tensor | None:
    q = store.take_optional(f"{prefix}q_norm.weight", model.head_dim)
    if q is None:
        return None
    k = store.take(f"{prefix}k_norm.weight", model.head_dim)
    return torch.cat([q.expand(model.num_heads, -1), k.expand(model.num_kv_heads, -1)])


def _files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        return [folder / name for name in sorted(set(json.loads(index.read_text())["weight_map"].values()))]
    return [folder / "model.safetensors"]


def _read(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file") from None
    except SafetensorError as error:
        raise CheckpointError(f"{path}: not a safetensors file ({error})") from None
