"""Rotary position embedding by rotating halves, as Llama and Qwen apply it."""

import math

import torch
from torch import Tensor

from engines.reference.model.config import Llama3Scaling, RopeConfig


class RotaryTable:
    """Cosines and sines of positions 0..length-1, [length, head_dim]; the first half of the sines is negated.

    With the sign in the table, rotating is x * cos + roll(x, head_dim / 2) * sin: three kernels for all heads.
    """

    def __init__(self, rope: RopeConfig, head_dim: int, length: int, dtype: torch.dtype, device: torch.device) -> None:
        angles = torch.outer(torch.arange(length, dtype=torch.float32), inverse_frequencies(rope, head_dim))
        cos, sin = angles.cos(), angles.sin()
        self._cos = torch.cat([cos, cos], dim=-1).to(device, dtype)
        self._sin = torch.cat([-sin, sin], dim=-1).to(device, dtype)

    def rows(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin for flat positions [R], each [R, 1, head_dim] to broadcast over heads."""
        return self._cos.index_select(0, positions).unsqueeze(1), self._sin.index_select(0, positions).unsqueeze(1)


def rotate_(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Rotate x [R, heads, head_dim] in place."""
    torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin, out=x)


def inverse_frequencies(rope: RopeConfig, head_dim: int) -> Tensor:
    """float32 [head_dim / 2]."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    frequencies = 1.0 / rope.theta**exponents
    return frequencies if rope.scaling is None else _scale_llama3(frequencies, rope.scaling)


def _scale_llama3(frequencies: Tensor, scaling: Llama3Scaling) -> Tensor:
    """Divide long wavelengths by the factor, keep short ones, blend in between (Llama 3.1)."""
    turns = scaling.original_max_position_embeddings * frequencies / (2 * math.pi)
    blend = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    blend = blend.clamp(0.0, 1.0)
    return blend * frequencies + (1 - blend) * frequencies / scaling.factor
