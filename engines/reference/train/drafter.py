"""The DFlash drafter as a trainable module, with z-lab's parameter names and one pass for many blocks of a sequence."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engines.reference.train.target import TargetConfig, rotary_table, rotate


@dataclass(frozen=True)
class DrafterConfig:
    """Shape of a drafter; everything that config.json of a DFlash checkpoint holds."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    max_positions: int
    vocab_size: int
    block_size: int
    num_target_layers: int
    target_layer_ids: tuple[int, ...]
    mask_token_id: int

    @classmethod
    def for_target(
        cls, target: TargetConfig, *, layers: int, block_size: int, target_layer_ids: tuple[int, ...], mask_token: int
    ) -> "DrafterConfig":
        """A drafter as wide as its target. Raises ValueError for layers or tokens that the target lacks."""
        # The last layer's output is left out: engines disagree whether it is meant before or after the final norm.
        bad = [index for index in target_layer_ids if not 0 <= index < target.num_layers - 1]
        if bad or not target_layer_ids:
            raise ValueError(f"target layers {list(target_layer_ids)}: each must be 0 to {target.num_layers - 2}")
        if not 0 <= mask_token < target.vocab_size:
            raise ValueError(f"mask token {mask_token}: must be below the vocabulary size {target.vocab_size}")
        return cls(
            hidden_size=target.hidden_size,
            intermediate_size=target.intermediate_size,
            num_layers=layers,
            num_heads=target.num_heads,
            num_kv_heads=target.num_kv_heads,
            head_dim=target.head_dim,
            rms_norm_eps=target.rms_norm_eps,
            rope_theta=target.rope_theta,
            max_positions=target.max_positions,
            vocab_size=target.vocab_size,
            block_size=block_size,
            num_target_layers=target.num_layers,
            target_layer_ids=target_layer_ids,
            mask_token_id=mask_token,
        )


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        scaled = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + self.eps)
        return (scaled * self.weight).to(x.dtype)


@dataclass(frozen=True)
class Rotary:
    """cos/sin of the context [T, E] and of the blocks [B, 1, A, 1, K, E]."""

    context: tuple[Tensor, Tensor]
    blocks: tuple[Tensor, Tensor]


class Attention(nn.Module):
    """Block queries over the context before their anchor and over their own block, in one softmax."""

    def __init__(self, config: DrafterConfig):
        super().__init__()
        heads, kv_heads, width = config.num_heads, config.num_kv_heads, config.head_dim
        self.kv_heads, self.groups, self.width = kv_heads, heads // kv_heads, width
        self.q_proj = nn.Linear(config.hidden_size, heads * width, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, kv_heads * width, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, kv_heads * width, bias=False)
        self.o_proj = nn.Linear(heads * width, config.hidden_size, bias=False)
        self.q_norm = RMSNorm(width, config.rms_norm_eps)
        self.k_norm = RMSNorm(width, config.rms_norm_eps)

    def forward(self, x: Tensor, context: Tensor, rotary: Rotary, visible: Tensor) -> Tensor:
        """x [B,A,K,H], context [B,T,H], visible [B,A,T] bool -> [B,A,K,H]."""
        batch, anchors, size, _ = x.shape
        rows = self.groups * size
        q = self.q_norm(self.q_proj(x).unflatten(-1, (self.kv_heads, self.groups, self.width)))
        # [B, kv_heads, A, groups, K, E]: the heads of a group become rows against their shared keys.
        q = rotate(q.permute(0, 3, 1, 4, 2, 5), *rotary.blocks).to(x.dtype) * self.width**-0.5
        q = q.reshape(batch, self.kv_heads, anchors, rows, self.width)
        own_k, own_v = self._keys_values(x)  # [B, A, K, kv_heads, E]
        own_k = rotate(own_k.permute(0, 3, 1, 2, 4)[:, :, :, None], *rotary.blocks).to(x.dtype)[:, :, :, 0]
        own_v = own_v.permute(0, 3, 1, 2, 4)
        far_k, far_v = self._keys_values(context)  # [B, T, kv_heads, E]
        far_k = rotate(far_k.transpose(1, 2), *rotary.context).to(x.dtype)
        far_v = far_v.transpose(1, 2)

        far = q.flatten(2, 3) @ far_k.transpose(-1, -2)
        far = far.unflatten(2, (anchors, rows)).masked_fill(~visible[:, None, :, None, :], float("-inf"))
        scores = torch.cat((far, q @ own_k.transpose(-1, -2)), dim=-1)
        weights = scores.softmax(dim=-1, dtype=torch.float32).to(x.dtype)
        far_weights, own_weights = torch.split(weights, [context.shape[1], size], dim=-1)
        mixed = (far_weights.flatten(2, 3) @ far_v).view(q.shape) + own_weights @ own_v
        mixed = mixed.view(batch, self.kv_heads, anchors, self.groups, size, self.width).permute(0, 2, 4, 1, 3, 5)
        return self.o_proj(mixed.flatten(3))  # type: ignore[no-any-return]

    def _keys_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        shape = (self.kv_heads, self.width)
        return self.k_norm(self.k_proj(x).unflatten(-1, shape)), self.v_proj(x).unflatten(-1, shape)


class MLP(nn.Module):
    def __init__(self, config: DrafterConfig):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))  # type: ignore[no-any-return]


class DecoderLayer(nn.Module):
    def __init__(self, config: DrafterConfig):
        super().__init__()
        self.self_attn = Attention(config)
        self.mlp = MLP(config)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x: Tensor, context: Tensor, rotary: Rotary, visible: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), context, rotary, visible)
        return x + self.mlp(self.post_attention_layernorm(x))  # type: ignore[no-any-return]


class Drafter(nn.Module):
    """DFlash drafter: embeddings and LM head are the target's, so neither is a parameter."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: DrafterConfig):
        super().__init__()
        self.config = config
        self.fc = nn.Linear(len(config.target_layer_ids) * config.hidden_size, config.hidden_size, bias=False)
        self.hidden_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        cos, sin = rotary_table(config.max_positions, config.head_dim, config.rope_theta, torch.device("cpu"))
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self._initialise()

    def forward(self, blocks: Tensor, features: Tensor, anchors: Tensor) -> Tensor:
        """Final states [B,A,K,H] of the blocks whose seeds sit at `anchors` [B,A].

        blocks [B,A,K,H]: embedded [seed, MASK, ...]; features [B,T,F]: the target's layer outputs from position 0.
        """
        context = self.hidden_norm(self.fc(features))
        places = anchors[..., None] + torch.arange(blocks.shape[2], device=anchors.device)
        rotary = Rotary(
            context=(self.cos[: features.shape[1]], self.sin[: features.shape[1]]),
            blocks=(self.cos[places][:, None, :, None], self.sin[places][:, None, :, None]),
        )
        visible = visible_context(anchors, features.shape[1])
        x = blocks
        for layer in self.layers:
            x = layer(x, context, rotary, visible)
        return self.norm(x)  # type: ignore[no-any-return]

    def _initialise(self) -> None:
        depth_scale = (2 * self.config.num_layers) ** -0.5
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                scale = depth_scale if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0
                nn.init.normal_(parameter, std=scale * parameter.shape[1] ** -0.5)


def visible_context(anchors: Tensor, length: int) -> Tensor:
    """Bool [B,A,length]: context positions strictly before each block's seed, whose own features do not exist yet."""
    return torch.arange(length, device=anchors.device) < anchors[..., None]


def embed_blocks(embedding: Tensor, seeds: Tensor, config: DrafterConfig) -> Tensor:
    """Embedded inputs [B,A,K,H] of blocks [seed, MASK, ...] for seed tokens [B,A]."""
    masks = seeds.new_full((*seeds.shape, config.block_size - 1), config.mask_token_id)
    return F.embedding(torch.cat((seeds[..., None], masks), dim=-1), embedding)
