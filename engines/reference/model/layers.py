"""The decoder layer of Llama, Qwen2, Qwen3 and of DFlash drafters, with as few kernels as PyTorch allows."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engines.reference.model.cache import KVCache, Rows
from engines.reference.model.config import ModelConfig
from engines.reference.model.linear import Linear
from engines.reference.model.rope import rotate_


@dataclass(frozen=True)
class Pass:
    """What all layers of one forward share, for B sequences of T tokens.

    cos, sin [B*T, 1, head_dim]; masks: additive, [B, 1, T * group, end], by sliding window (None = full attention).
    """

    cos: Tensor
    sin: Tensor
    masks: dict[int | None, Tensor]
    rows: Rows
    cache: KVCache


@dataclass(frozen=True)
class LayerWeights:
    """Plain weights of one layer. qkv stacks q, k, v heads and `qk_norm` [heads + kv_heads, head_dim] their norms.

    Query heads are stored group-major (see `group_major`).
    """

    input_norm: Tensor
    qkv: Linear
    qk_norm: Tensor | None
    output: Linear
    post_norm: Tensor
    gate_up: Linear
    down: Linear


class DecoderLayer:
    def __init__(self, index: int, model: ModelConfig, weights: LayerWeights) -> None:
        self._index = index
        self._model = model
        self._weights = weights
        self._window = model.windows[index]
        self._rotated = (model.num_heads + model.num_kv_heads) * model.head_dim

    def __call__(self, hidden: Tensor, step: Pass) -> Tensor:
        """hidden [B*T, hidden_size] -> the same shape; keys and values go to the cache."""
        model, weights = self._model, self._weights
        qkv = weights.qkv(rms_norm(hidden, weights.input_norm, model.norm_eps))
        hidden = weights.output.add_to(hidden, self._attend(qkv, step))
        gate_up = weights.gate_up(rms_norm(hidden, weights.post_norm, model.norm_eps))
        gate, up = gate_up.chunk(2, -1)
        return weights.down.add_to(hidden, F.silu(gate).mul_(up))

    def _attend(self, qkv: Tensor, step: Pass) -> Tensor:
        """Grouped queries become rows of their key head, so keys are never repeated in memory."""
        model, batch = self._model, step.rows.count
        self._rotate(qkv, step)
        heads = qkv.view(batch, -1, model.num_heads + 2 * model.num_kv_heads, model.head_dim)
        queries, kv = heads[:, :, : model.num_heads], heads[:, :, model.num_heads :]
        step.cache.write(self._index, step.rows, kv.view(batch, -1, 2, model.num_kv_heads, model.head_dim))
        keys, values = step.cache.view(self._index, step.rows)
        grouped = queries.view(batch, -1, model.group_size, model.num_kv_heads, model.head_dim).permute(0, 3, 1, 2, 4)
        mixed = F.scaled_dot_product_attention(
            grouped.reshape(batch, model.num_kv_heads, -1, model.head_dim),
            keys,
            values,
            attn_mask=step.masks[self._window],
        )
        return mixed.transpose(1, 2).reshape(qkv.shape[0], -1)

    def _rotate(self, qkv: Tensor, step: Pass) -> None:
        heads = qkv[:, : self._rotated].view(qkv.shape[0], -1, self._model.head_dim)
        if self._weights.qk_norm is not None:
            normed = F.rms_norm(heads, (self._model.head_dim,), eps=self._model.norm_eps)
            torch.mul(normed, self._weights.qk_norm, out=heads)
        rotate_(heads, step.cos, step.sin)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x, weight.shape, weight, eps)


def group_major(rows: Tensor, model: ModelConfig) -> Tensor:
    """Reorder query heads along dimension 0 (num_heads * head_dim) from (kv head, group) to (group, kv head).

    Attention over grouped queries then returns its rows in the order in which the output projection reads them: no
    copy. The output projection's columns take the same order.
    """
    heads = rows.reshape(model.num_kv_heads, model.group_size, model.head_dim, *rows.shape[1:])
    return heads.transpose(0, 1).reshape(rows.shape)
