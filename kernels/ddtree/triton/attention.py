# mypy: allow-untyped-calls
"""Launches of tree attention."""

import torch
import triton

from ddtree.checks import require, require_contiguous
from ddtree.tree import Tree
from ddtree.triton.attend import attend, merge
from ddtree.triton.device import target_of
from ddtree.triton.schedule import Config, config_of, splits_of

TAIL = 32  # keys of the tree per tile: half an ancestor word
MERGED = 2048  # numbers that a warp of `merge` takes; a program has one row, since more are no faster
LOG2E = 1.4426950408889634


def tree_attention(
    query: torch.Tensor,
    tree_keys: torch.Tensor,
    tree_values: torch.Tensor,
    key_pool: torch.Tensor,
    value_pool: torch.Tensor,
    table: torch.Tensor,
    prefix_lens: torch.Tensor,
    tree: Tree,
    page_size: int,
    rows: torch.Tensor | None,
    scale: float,
    window: int | None,
    longest: int,
    config: Config | None = None,
    splits: int | None = None,
) -> torch.Tensor:
    """As `ddtree.attention.tree_attention`; `config` and `splits` override the tuning table."""
    batch, nodes, heads, size = query.shape
    kv_heads = tree_keys.shape[2]
    for name, tensor in (("query", query), ("tree_keys", tree_keys), ("tree_values", tree_values)):
        require(tensor.stride(3) == 1, f"{name} has stride {tensor.stride(3)} along the head, allowed is 1")
    for name, tensor in (("key_pool", key_pool), ("value_pool", value_pool), ("table", table)):
        require(tensor.stride(-1) == 1, f"{name} has stride {tensor.stride(-1)} along its last axis, allowed is 1")
    require_contiguous(prefix_lens=prefix_lens, ancestors=tree.ancestors, depths=tree.depths)
    require_contiguous(rows=prefix_lens if rows is None else rows)
    most = 64 if query.dtype == torch.float32 else 256
    require(size <= most, f"the head size is {size}, allowed on CUDA for {query.dtype} is 1 to {most}")
    target, packed = target_of(query.device), nodes * (heads // kv_heads)
    # With a window every row keeps its depth, for which a block of 256 rows has no registers left.
    tuned = packed if window is None else min(packed, 128)
    # Tiles for many requests were sought for pools of the query's type and whole heads alone.
    requests = batch if key_pool.dtype == query.dtype and size == triton.next_power_of_2(size) else 1
    config = config or config_of(target, tuned, size, query.element_size(), longest, requests)
    blocks = triton.cdiv(packed, config.block_m)
    if splits is None:
        tiles = triton.cdiv(longest, config.block_n)
        splits = splits_of(blocks * batch * kv_heads, target.processors * config.resident, tiles, config)
    out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    pairs, padded = batch * kv_heads, max(16, triton.next_power_of_2(size))
    parts, lse = out, prefix_lens
    if splits > 1:
        parts = torch.empty(pairs, splits, packed, size, device=query.device)
        lse = torch.empty(pairs, splits, packed, device=query.device)
    shape = {"HKV": kv_heads, "GROUP": heads // kv_heads, "E": size, "EP": padded}
    attend[(blocks, pairs, splits)](
        query,
        tree_keys,
        tree_values,
        key_pool,
        value_pool,
        table,
        prefix_lens if rows is None else rows,
        prefix_lens,
        tree.ancestors.view(torch.int32),
        tree.depths,
        parts,
        lse,
        *query.stride()[:3],
        *tree_keys.stride()[:3],
        *tree_values.stride()[:3],
        *key_pool.stride()[:2],
        *value_pool.stride()[:2],
        table.stride(0),
        nodes,
        scale * LOG2E,
        window or 0,
        splits,
        2 * tree.ancestors.shape[2],
        **shape,
        PAGE=page_size,
        SINGLE=splits == 1,
        ROWS=rows is not None,
        WINDOW=window is not None,
        WIDE=max(pool.shape[0] * pool.stride(0) for pool in (key_pool, value_pool)) >= 2**31,
        PRECISION="ieee" if query.dtype == torch.float32 else "tf32",
        STAGES=config.stages,
        BLOCK_M=config.block_m,
        BLOCK_N=config.block_n,
        TAIL=TAIL,
        num_warps=config.warps,
        num_stages=config.stages,
        maxnreg=config.registers or None,
    )
    if splits > 1:
        places = triton.next_power_of_2(splits)
        merge[(pairs, packed)](
            parts, lse, out, nodes, splits, **shape, SP=places, num_warps=max(1, places * padded // MERGED)
        )
    return out
