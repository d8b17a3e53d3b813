"""The target model: a lean forward over cached sequences."""

from dataclasses import dataclass

import torch
from torch import Tensor

from engines.reference.model.cache import KVCache, Rows
from engines.reference.model.config import ModelConfig
from engines.reference.model.layers import DecoderLayer, LayerWeights, Pass, rms_norm
from engines.reference.model.linear import Linear
from engines.reference.model.mask import additive_masks
from engines.reference.model.rope import RotaryTable


@dataclass(frozen=True)
class TargetWeights:
    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    head: Linear


class Target:
    """`feature_layers`: layers whose output hidden states a drafter reads; set by the drafter's loader."""

    def __init__(self, config: ModelConfig, weights: TargetWeights) -> None:
        self.config = config
        self.embedding = weights.embedding
        self.dtype = weights.embedding.dtype
        self.device = weights.embedding.device
        self._layers = [DecoderLayer(index, config, layer) for index, layer in enumerate(weights.layers)]
        self._norm = weights.norm
        self._head = weights.head

    def rotary_table(self, length: int) -> RotaryTable:
        return RotaryTable(self.config.rope, self.config.head_dim, length, self.dtype, self.device)

    def new_cache(self, slots: int, length: int) -> KVCache:
        return KVCache(self.config, slots, length, self.dtype, self.device)

    def forward(self, tokens: Tensor, step: Pass, feature_layers: tuple[int, ...] = ()) -> tuple[Tensor, Tensor | None]:
        """tokens [B, T] -> last hidden states [B*T, hidden] before the final norm, and the features a drafter reads.

        Features [B*T, len(feature_layers) * hidden] concatenate the outputs of those layers, None without any.
        """
        hidden = self.embedding.index_select(0, tokens.flatten())
        taken: dict[int, Tensor] = {}
        for index, layer in enumerate(self._layers):
            hidden = layer(hidden, step)
            if index in feature_layers:
                taken[index] = hidden
        features = torch.cat([taken[index] for index in feature_layers], dim=-1) if feature_layers else None
        return hidden, features

    def logits(self, hidden: Tensor) -> Tensor:
        """[R, hidden] -> [R, vocabulary]."""
        return self.head(rms_norm(hidden, self._norm, self.config.norm_eps))

    def head(self, normed: Tensor) -> Tensor:
        """The language-model head alone, which the drafter shares."""
        return self._head(normed)


def plan_pass(
    model: ModelConfig,
    cache: KVCache,
    rotary: RotaryTable,
    among: Tensor,
    prefix_lens: Tensor,
    positions: Tensor,
    first_slot: int,
    end: int,
) -> Pass:
    """Prepare a forward of T new tokens for each of B sequences in slots first_slot.., after prefixes [B].

    The tokens' KV rows are prefix..prefix+T-1, their sequence positions `positions` [B, T]; `among` bool [B, T, T]
    says which of the new tokens each one sees; `end` is the longest prefix + T, known to the host.
    """
    cos, sin = rotary.rows(positions.flatten())
    masks = additive_masks(among, prefix_lens, positions, end, model.windows, model.group_size, cos.dtype)
    return Pass(cos, sin, masks, Rows.after(prefix_lens, positions.shape[1], first_slot, end), cache)
