"""The DFlash drafter: one forward proposes a block of tokens after the seed (arXiv 2602.06036, z-lab's checkpoints).

The drafter sees the context only through the target's hidden states: their projection gives every draft layer's keys
and values at committed positions (KV injection). A block is [seed, mask, mask, ...]; it attends to the context before
the seed and to itself in both directions, and position i of it predicts the token at the seed's position + i.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from engines.reference.model.cache import KVCache, Rows
from engines.reference.model.config import DrafterConfig
from engines.reference.model.layers import DecoderLayer, LayerWeights, rms_norm
from engines.reference.model.linear import Linear
from engines.reference.model.mask import bidirectional
from engines.reference.model.rope import RotaryTable, rotate_
from engines.reference.model.target import Target, plan_pass


@dataclass(frozen=True)
class DrafterWeights:
    """`context_kv` stacks the key and value projections of all layers: [layers * 2 * kv_heads * head_dim, hidden];
    `context_k_norm` [layers, kv_heads, head_dim] their key norms where the file has them.
    """

    layers: tuple[LayerWeights, ...]
    features: Linear
    feature_norm: Tensor
    norm: Tensor
    context_kv: Linear
    context_k_norm: Tensor | None


class Drafter:
    def __init__(self, config: DrafterConfig, weights: DrafterWeights, target: Target) -> None:
        self.config = config
        self.depth = config.block_size - 1
        self._weights = weights
        self._target = target
        self._layers = [DecoderLayer(index, config.model, layer) for index, layer in enumerate(weights.layers)]

    def rotary_table(self, length: int) -> RotaryTable:
        model = self.config.model
        return RotaryTable(model.rope, model.head_dim, length, self._target.dtype, self._target.device)

    def new_cache(self, slots: int, length: int) -> KVCache:
        return KVCache(self.config.model, slots, length, self._target.dtype, self._target.device)

    def inject(self, features: Tensor, cache: KVCache, rotary: RotaryTable, rows: Rows) -> None:
        """Store the keys and values of committed positions, from the target's features [B, T, layers * hidden]."""
        model, weights = self.config.model, self._weights
        context = rms_norm(weights.features(features.flatten(0, 1)), weights.feature_norm, model.norm_eps)
        kv = weights.context_kv(context).view(-1, model.num_layers, 2, model.num_kv_heads, model.head_dim)
        keys = kv[:, :, 0]
        if weights.context_k_norm is not None:
            normed = torch.nn.functional.rms_norm(keys, (model.head_dim,), eps=model.norm_eps)
            torch.mul(normed, weights.context_k_norm, out=keys)
        cos, sin = rotary.rows(rows.index.flatten())
        rotate_(keys, cos.unsqueeze(1), sin.unsqueeze(1))
        per_layer = kv.view(rows.count, -1, *kv.shape[1:]).unbind(2)
        for layer in range(model.num_layers):
            cache.write(layer, rows, per_layer[layer])

    def draft(self, seeds: Tensor, prefix_lens: Tensor, longest: int, cache: KVCache, rotary: RotaryTable) -> Tensor:
        """Seeds [B] at positions prefix_lens [B] -> logits [B, depth, vocabulary] for the positions after them.

        The block's own keys and values lie in the rows that the next injection overwrites.
        """
        batch, width = seeds.shape[0], self.config.block_size
        block = torch.full((batch, width), self.config.mask_token_id, device=seeds.device)
        block[:, 0] = seeds
        positions = prefix_lens.unsqueeze(1) + torch.arange(width, device=seeds.device)
        among = bidirectional(batch, width, seeds.device)
        model = self.config.model
        step = plan_pass(model, cache, rotary, among, prefix_lens, positions, 0, longest + width)
        hidden = self._target.embedding.index_select(0, block.flatten())
        for layer in self._layers:
            hidden = layer(hidden, step)
        predicting = hidden.view(batch, width, -1)[:, 1:].flatten(0, 1)
        logits = self._target.head(rms_norm(predicting, self._weights.norm, model.norm_eps))
        return logits.view(batch, self.depth, -1)
