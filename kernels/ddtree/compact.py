"""Accepted KV rows and hidden rows moved to the front."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ddtree.accept import Acceptance
from ddtree.checks import INTEGERS, require, require_buffer, require_tensor
from ddtree.dispatch import implementation


@dataclass(frozen=True)
class PoolTable:
    """Flat KV pools [slots, ...] of all layers, keys and values alike, and their addresses on the device. Make it
    once, outside a graph.
    """

    pools: tuple[torch.Tensor, ...]
    addresses: torch.Tensor

    @classmethod
    def of(cls, pools: Sequence[torch.Tensor]) -> "PoolTable":
        """All pools must share shape, dtype, device and strides, and each row must be contiguous."""
        require(len(pools) > 0, "a pool table needs at least one pool")
        first = pools[0]
        require(first.dim() >= 2, f"a pool has shape {list(first.shape)}, allowed is [slots, ...]")
        require(first.numel() > 0 and first[0].is_contiguous(), "the rows of a pool must be contiguous and not empty")
        for pool in pools:
            require_tensor("pool", pool, tuple(first.shape), (first.dtype,), first.device)
            require(pool.stride() == first.stride(), "all pools of a table must have the same strides")
        addresses = torch.tensor([pool.data_ptr() for pool in pools], dtype=torch.int64, device=first.device)
        return cls(tuple(pools), addresses)


def compact_kv(keys: torch.Tensor, values: torch.Tensor, acceptance: Acceptance, prefix_lens: torch.Tensor) -> None:
    """In caches [L,B,S,H,E], move rows prefix + node_index[b, j] to prefix + j for all layers, in place.

    The tree's rows lie at prefix .. prefix + N - 1 of each request. Safe although source and target overlap, since a
    path's node indices increase and are never below their place in the path. The CPU raises where a row lies outside
    of the cache.
    """
    batch = acceptance.lengths.shape[0]
    device = acceptance.lengths.device
    require(keys.dim() == 5, f"keys has shape {list(keys.shape)}, allowed is [L, B, S, H, E]")
    require_tensor("keys", keys, (None, batch, None, None, None), (keys.dtype,), device)
    require_tensor("values", values, (*keys.shape[:4], None), (keys.dtype,), device)
    require_tensor("prefix_lens", prefix_lens, (batch,), INTEGERS, device)
    implementation("compact", device).compact_kv(keys, values, acceptance.node_index, acceptance.lengths, prefix_lens)


def compact_slots(table: PoolTable, slots: torch.Tensor, acceptance: Acceptance) -> None:
    """In every pool, move row slots[b, node_index[b, j]] to row slots[b, j], in place; slots [B,N] are distinct."""
    require_tensor("slots", slots, (acceptance.lengths.shape[0], None), INTEGERS, table.addresses.device)
    require(acceptance.lengths.device == slots.device, "the acceptance and the slots are on different devices")
    implementation("compact", slots.device).compact_slots(
        table.pools, table.addresses, slots, acceptance.node_index, acceptance.lengths
    )


def gather_rows(hidden: torch.Tensor, acceptance: Acceptance, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """[B,D+1,H]: rows of hidden [B,N,H] along the accepted path, zeros after its end. `out` is written in place and
    returned.
    """
    require(hidden.dim() == 3, f"hidden has shape {list(hidden.shape)}, allowed is [B, N, H]")
    require_tensor(
        "hidden", hidden, (acceptance.lengths.shape[0], None, None), (hidden.dtype,), acceptance.lengths.device
    )
    shape = (*acceptance.node_index.shape, hidden.shape[2])
    if out is None:
        out = torch.empty(shape, dtype=hidden.dtype, device=hidden.device)
    require_buffer("out", out, shape, hidden.dtype, hidden.device)
    implementation("compact", hidden.device).gather_rows(hidden, acceptance.node_index, out)
    return out
