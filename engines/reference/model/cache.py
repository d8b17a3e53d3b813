"""Key/value memory of a decoder stack, one slot a running sequence, allocated once."""

from dataclasses import dataclass

import torch
from torch import Tensor

from engines.reference.model.config import ModelConfig


@dataclass(frozen=True)
class Rows:
    """Which rows T tokens of each of B sequences take: `index` [B, T] of the neighbouring slots `slots` [B, 1].

    `first` and `count` are the slots for the host; `end` = keys to attend over, one past the last row in use.
    """

    slots: Tensor
    index: Tensor
    first: int
    count: int
    end: int

    @classmethod
    def after(cls, prefix_lens: Tensor, width: int, first: int, end: int) -> "Rows":
        """The `width` rows after each prefix [B] of the slots from `first` on."""
        count, device = prefix_lens.shape[0], prefix_lens.device
        slots = torch.arange(first, first + count, device=device).unsqueeze(1)
        return cls(slots, prefix_lens.unsqueeze(1) + torch.arange(width, device=device), first, count, end)


class KVCache:
    """[layers, 2 (keys, values), slots, kv_heads, length, head_dim].

    Head-major rows suit scaled_dot_product_attention best on a CPU, and running sequences stay in neighbouring slots,
    so a batch's keys are a view and never a copy.
    """

    def __init__(self, model: ModelConfig, slots: int, length: int, dtype: torch.dtype, device: torch.device) -> None:
        shape = (model.num_layers, 2, slots, model.num_kv_heads, length, model.head_dim)
        # Zeros, not empty: rows that a mask hides are still multiplied, and NaN times zero is NaN.
        self._memory = torch.zeros(shape, dtype=dtype, device=device)
        self.length = length

    def write(self, layer: int, rows: Rows, kv: Tensor) -> None:
        """Store kv [B, T, 2, kv_heads, head_dim] of one layer."""
        self._memory[layer].permute(1, 3, 0, 2, 4)[rows.slots, rows.index] = kv

    def view(self, layer: int, rows: Rows) -> tuple[Tensor, Tensor]:
        """Keys and values [B, kv_heads, end, head_dim] of one layer."""
        keys, values = self._memory[layer, :, rows.first : rows.first + rows.count, :, : rows.end].unbind(0)
        return keys, values

    def by_sequence(self, count: int) -> tuple[Tensor, Tensor]:
        """Keys and values [layers, count, length, kv_heads, head_dim] of the first `count` slots, as views."""
        keys, values = self._memory[:, :, :count].transpose(3, 4).unbind(1)
        return keys, values

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` rows of one slot into another."""
        self._memory[:, :, target, :, :length] = self._memory[:, :, source, :, :length]
