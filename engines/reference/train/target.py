"""The target model as the trainer needs it: a batched decode step and a pass that yields hidden states.

Covers the Llama family (Llama, Qwen2, Qwen3, Mistral without sliding window) with default rotary embeddings.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class TargetConfig:
    """Sizes of a target; `stop_ids` end a turn."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    rms_norm_eps: float
    rope_theta: float
    max_positions: int
    stop_ids: tuple[int, ...]


@dataclass(frozen=True)
class Layer:
    """One decoder layer with fused projections; optional parts are None where the model has none."""

    input_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    q_norm: Tensor | None
    k_norm: Tensor | None
    output: Tensor
    post_norm: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True)
class KeyValues:
    """Preallocated keys and values, [layers, batch, kv_heads, capacity, head_dim]."""

    keys: Tensor
    values: Tensor

    @classmethod
    def empty(cls, config: TargetConfig, batch: int, capacity: int, like: Tensor) -> "KeyValues":
        shape = (config.num_layers, batch, config.num_kv_heads, capacity, config.head_dim)
        return cls(like.new_zeros(shape), like.new_zeros(shape))


def rotary_table(positions: int, head_dim: int, theta: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosines and sines, each [positions, head_dim] float32, in the half-split layout."""
    inverse = theta ** (-torch.arange(0, head_dim, 2, device=device, dtype=torch.float32) / head_dim)
    angles = torch.outer(torch.arange(positions, device=device, dtype=torch.float32), inverse)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of x[..., head_dim]; cos and sin broadcast against it."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Target:
    """Weights of a frozen target on one device in one dtype."""

    def __init__(self, config: TargetConfig, weights: Mapping[str, Tensor], device: torch.device, dtype: torch.dtype):
        def get(name: str) -> Tensor:
            return weights[name].to(device, dtype)

        def maybe(name: str) -> Tensor | None:
            return get(name) if name in weights else None

        self.config = config
        self.device, self.dtype = device, dtype
        self.embedding = get("model.embed_tokens.weight")
        self.head = get("lm_head.weight") if "lm_head.weight" in weights else self.embedding
        # Logits in float32: bfloat16 ones tie so often that greedy text would no longer be greedy.
        self.head32 = self.head.float()
        self.norm = get("model.norm.weight")
        self.layers = [_layer(f"model.layers.{index}.", get, maybe) for index in range(config.num_layers)]
        self.cos, self.sin = (
            table.to(dtype) for table in rotary_table(config.max_positions, config.head_dim, config.rope_theta, device)
        )

    def logits(self, hidden: Tensor) -> Tensor:
        """Float32 logits [..., vocab] of final hidden states [..., hidden]."""
        return hidden.float() @ self.head32.T

    @torch.no_grad()
    def hidden_states(self, tokens: Tensor, layer_ids: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Causal pass over right-padded tokens [B, T].

        Returns the outputs of layers `layer_ids`, concatenated [B, T, len(layer_ids) * hidden], and the final normed
        states [B, T, hidden].
        """
        cos, sin = self.cos[: tokens.shape[1]], self.sin[: tokens.shape[1]]

        def attend(_: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            groups = q.shape[2] // k.shape[2]
            q, k = rotate(q.transpose(1, 2), cos, sin), rotate(k.transpose(1, 2), cos, sin)
            k, v = k.repeat_interleave(groups, dim=1), v.transpose(1, 2).repeat_interleave(groups, dim=1)
            return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)

        captured: dict[int, Tensor] = {}
        final = self._forward(F.embedding(tokens, self.embedding), attend, captured, layer_ids)
        return torch.cat([captured[index] for index in layer_ids], dim=-1), final

    @torch.no_grad()
    def decode(self, tokens: Tensor, position: Tensor, cache: KeyValues, length: int) -> Tensor:
        """One token for every sequence, tokens [B], all at the same `position` (int64 [1], on the device).

        Writes the cache at `position`, reads its first `length` > position slots, returns final states [B, hidden].
        Free of host synchronisation, so that a CUDA graph can hold it.
        """
        cos, sin = self.cos.index_select(0, position), self.sin.index_select(0, position)
        hidden_slots = torch.arange(length, device=tokens.device) > position
        kv_heads, groups = self.config.num_kv_heads, self.config.num_heads // self.config.num_kv_heads
        mask = torch.zeros(groups, length, device=tokens.device, dtype=self.dtype)
        mask = mask.masked_fill(hidden_slots, float("-inf")).expand(len(tokens), kv_heads, groups, length)

        def attend(index: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            batch, _, heads, width = q.shape
            keys, values = cache.keys[index], cache.values[index]
            keys.index_copy_(2, position, rotate(k, cos, sin).transpose(1, 2))
            values.index_copy_(2, position, v.transpose(1, 2))
            # Grouped heads become query rows of their kv head: no copy of keys and values.
            grouped = rotate(q, cos, sin).reshape(batch, kv_heads, groups, width)
            out = F.scaled_dot_product_attention(grouped, keys[:, :, :length], values[:, :, :length], attn_mask=mask)
            return out.reshape(batch, 1, heads, width)

        return self._forward(F.embedding(tokens[:, None], self.embedding), attend, {}, ())[:, 0]

    def _forward(self, x: Tensor, attend: Attend, captured: dict[int, Tensor], layer_ids: Sequence[int]) -> Tensor:
        for index, layer in enumerate(self.layers):
            x = x + self._attention(index, layer, self._rms(x, layer.input_norm), attend)
            gate, up = F.linear(self._rms(x, layer.post_norm), layer.gate_up).chunk(2, dim=-1)
            x = x + F.linear(F.silu(gate) * up, layer.down)
            if index in layer_ids:
                captured[index] = x
        return self._rms(x, self.norm)

    def _attention(self, index: int, layer: Layer, x: Tensor, attend: Attend) -> Tensor:
        config = self.config
        heads = F.linear(x, layer.qkv, layer.qkv_bias).unflatten(-1, (-1, config.head_dim))  # type: ignore[no-untyped-call]
        q, k, v = torch.split(heads, [config.num_heads, config.num_kv_heads, config.num_kv_heads], dim=-2)
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = self._rms(q, layer.q_norm), self._rms(k, layer.k_norm)
        return F.linear(attend(index, q, k, v).flatten(-2), layer.output)

    def _rms(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, self.config.rms_norm_eps)


def _layer(prefix: str, get: Callable[[str], Tensor], maybe: Callable[[str], Tensor | None]) -> Layer:
    attention = prefix + "self_attn."
    biases = [maybe(f"{attention}{name}_proj.bias") for name in "qkv"]
    present = [bias for bias in biases if bias is not None]
    return Layer(
        input_norm=get(prefix + "input_layernorm.weight"),
        qkv=torch.cat([get(f"{attention}{name}_proj.weight") for name in "qkv"]),
        qkv_bias=torch.cat(present) if len(present) == 3 else None,
        q_norm=maybe(attention + "q_norm.weight"),
        k_norm=maybe(attention + "k_norm.weight"),
        output=get(attention + "o_proj.weight"),
        post_norm=get(prefix + "post_attention_layernorm.weight"),
        gate_up=torch.cat([get(f"{prefix}mlp.{name}_proj.weight") for name in ("gate", "up")]),
        down=get(prefix + "mlp.down_proj.weight"),
    )
