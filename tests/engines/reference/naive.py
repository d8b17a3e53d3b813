"""The models again, as plainly as possible: whole sequences, float64, no cache. It reads the files by itself."""

import json
import math
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor


class Naive:
    """A target, or with `target` a DFlash drafter that borrows its embeddings and head."""

    def __init__(self, folder: Path, target: "Naive | None" = None) -> None:
        self.config: dict[str, Any] = json.loads((folder / "config.json").read_text())
        self._prefix = "" if target else "model."
        self._tensors = {name: tensor.double() for name, tensor in load_file(folder / "model.safetensors").items()}
        self._target = target

    def logits(self, ids: list[int]) -> Tensor:
        """[T, V] of a target."""
        return self._head(self.hidden_states(ids)[-1], self["norm.weight"])

    def greedy(self, prompt: list[int], count: int) -> list[int]:
        """The next `count` tokens, each by a forward over everything before it."""
        ids = list(prompt)
        for _ in range(count):
            ids.append(int(self.logits(ids)[-1].argmax()))
        return ids[len(prompt) :]

    def hidden_states(self, ids: list[int]) -> list[Tensor]:
        """Embeddings, then the output of every layer, each [T, hidden]."""
        positions = torch.arange(len(ids))
        states = [self._embedding[torch.tensor(ids)]]
        for layer in range(self.config["num_hidden_layers"]):
            seen = positions[:, None] >= positions[None, :]
            states.append(self._layer(layer, states[-1], positions, None, seen))
        return states

    def draft(self, ids: list[int]) -> Tensor:
        """Logits [block - 1, V] of a drafter for the tokens after ids, whose last one is the seed."""
        assert self._target is not None
        block = self.config["block_size"]
        start = len(ids) - 1
        states = self._target.hidden_states(ids[:-1])
        features = torch.cat([states[layer + 1] for layer in self.config["dflash_config"]["target_layer_ids"]], dim=-1)
        context = self._norm(features @ self["fc.weight"].T, self["hidden_norm.weight"])
        tokens = [ids[-1]] + [self.config["dflash_config"]["mask_token_id"]] * (block - 1)
        hidden = self._target._embedding[torch.tensor(tokens)]
        for layer in range(self.config["num_hidden_layers"]):
            seen = torch.ones(block, start + block, dtype=torch.bool)
            hidden = self._layer(layer, hidden, torch.arange(start, start + block), context, seen)
        return self._target._project(self._norm(hidden, self["norm.weight"])[1:])

    def __getitem__(self, name: str) -> Tensor:
        tensor: Tensor = self._tensors[self._prefix + name]
        return tensor

    @property
    def _embedding(self) -> Tensor:
        return self["embed_tokens.weight"]

    def _head(self, hidden: Tensor, norm: Tensor) -> Tensor:
        return self._project(self._norm(hidden, norm))

    def _project(self, normed: Tensor) -> Tensor:
        return normed @ self._tensors.get("lm_head.weight", self._embedding).T

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        eps: float = self.config["rms_norm_eps"]
        return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight

    def _layer(self, layer: int, hidden: Tensor, positions: Tensor, context: Tensor | None, seen: Tensor) -> Tensor:
        """One layer over queries at `positions`; `context` [C, hidden] adds keys and values at positions 0..C-1."""
        name = f"layers.{layer}."
        normed = self._norm(hidden, self[f"{name}input_layernorm.weight"])
        source, key_positions = normed, positions
        if context is not None:
            source = torch.cat([context, normed])
            key_positions = torch.cat([torch.arange(len(context)), positions])
        mixed = self._attention(f"{name}self_attn.", layer, normed, source, positions, key_positions, seen)
        hidden = hidden + self._linear(f"{name}self_attn.o_proj", mixed)
        normed = self._norm(hidden, self[f"{name}post_attention_layernorm.weight"])
        gate = self._linear(f"{name}mlp.gate_proj", normed)
        return hidden + self._linear(
            f"{name}mlp.down_proj", gate * torch.sigmoid(gate) * self._linear(f"{name}mlp.up_proj", normed)
        )

    def _attention(
        self,
        name: str,
        layer: int,
        normed: Tensor,
        source: Tensor,
        positions: Tensor,
        key_positions: Tensor,
        seen: Tensor,
    ) -> Tensor:
        heads, kv_heads = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        q = self._heads(f"{name}q", normed, heads, positions)
        k = self._heads(f"{name}k", source, kv_heads, key_positions)
        v = self._linear(f"{name}v_proj", source).view(len(source), kv_heads, -1)
        types = self.config.get("layer_types") or ["full_attention"] * (layer + 1)
        if types[layer] == "sliding_attention":
            seen = seen & (positions[:, None] - key_positions[None, :] < self.config["sliding_window"])
        rows = []
        for head in range(heads):
            keys, values = k[:, head * kv_heads // heads], v[:, head * kv_heads // heads]
            scores = (q[:, head] @ keys.T / math.sqrt(keys.shape[-1])).masked_fill(~seen, -math.inf)
            rows.append(scores.softmax(-1) @ values)
        return torch.stack(rows, dim=1).flatten(1)

    def _heads(self, name: str, x: Tensor, heads: int, positions: Tensor) -> Tensor:
        projected = self._linear(f"{name}_proj", x).view(len(x), heads, -1)
        norm = self._tensors.get(f"{self._prefix}{name}_norm.weight")
        if norm is not None:
            projected = self._norm(projected, norm)
        return _rotate(projected, positions, self._frequencies)

    @cached_property
    def _frequencies(self) -> Tensor:
        parameters = self.config.get("rope_parameters") or self.config.get("rope_scaling") or {}
        theta = parameters.get("rope_theta") or self.config["rope_theta"]
        size = self.config["head_dim"]
        plain = [theta ** (-2 * index / size) for index in range(size // 2)]
        if parameters.get("rope_type", "default") == "llama3":
            plain = [_llama3(frequency, parameters) for frequency in plain]
        return torch.tensor(plain, dtype=torch.float64)

    def _linear(self, name: str, x: Tensor) -> Tensor:
        bias = self._tensors.get(f"{self._prefix}{name}.bias")
        product = x @ self[f"{name}.weight"].T
        return product if bias is None else product + bias


def _llama3(frequency: float, parameters: dict[str, Any]) -> float:
    wavelength = 2 * math.pi / frequency
    original = parameters["original_max_position_embeddings"]
    low, high = parameters["low_freq_factor"], parameters["high_freq_factor"]
    if wavelength > original / low:
        return float(frequency / parameters["factor"])
    if wavelength < original / high:
        return frequency
    share = (original / wavelength - low) / (high - low)
    return float((1 - share) * frequency / parameters["factor"] + share * frequency)


def _rotate(x: Tensor, positions: Tensor, frequencies: Tensor) -> Tensor:
    """Each pair (i, i + size / 2) of every head turns by position * frequency[i]."""
    angles = positions[:, None, None].double() * frequencies
    first, second = x.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
