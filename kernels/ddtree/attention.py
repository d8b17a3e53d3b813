"""Attention of tree nodes to a paged prefix and to their own ancestors."""

import torch

from ddtree.checks import FLOATS, INTEGERS, require, require_tensor, require_whole
from ddtree.dispatch import implementation
from ddtree.tree import Tree, check_tree

FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)


def tree_attention(
    query: torch.Tensor,
    tree_keys: torch.Tensor,
    tree_values: torch.Tensor,
    key_pool: torch.Tensor,
    value_pool: torch.Tensor,
    table: torch.Tensor,
    prefix_lens: torch.Tensor,
    tree: Tree,
    *,
    page_size: int = 1,
    rows: torch.Tensor | None = None,
    scale: float | None = None,
    window: int | None = None,
    longest: int | None = None,
) -> torch.Tensor:
    """[B,N,Hq,E]: query [B,N,Hq,E] over the prefix of each request and over the tree's own keys under the ancestor
    mask.

    tree_keys, tree_values [B,N,Hkv,E] are the nodes' own. The pools [slots,Hkv,E] hold the prefix: position p of a
    request lies in slot `table[row, p // page_size] * page_size + p % page_size`, so a block table serves page sizes
    above 1 and a slot table page size 1. `rows` [B] names each request's row (default: row b); for a one-dimensional
    table it is required and holds each request's first entry. Query head h reads KV head h // (Hq / Hkv). `scale`
    defaults to E ** -0.5. With `window`, a node at position p sees positions above p - window only. Pools in float8
    are converted, unscaled. Prefix lengths must be within what the table holds. `longest` bounds them from above, for
    how the work is cut: by default what a row of the table holds, which says nothing of a flat one. The CPU raises
    where lengths or entries of the table lead out of it or of the pool, and where the tree does not pass `check_tree`.
    On CUDA the head size is at most 256, and 64 in float32, which is there for tests.
    """
    device = query.device
    require_tensor("query", query, (None, None, None, None), FLOATS, device)
    batch, nodes, heads, size = query.shape
    require_tensor("tree_keys", tree_keys, (batch, nodes, None, size), (query.dtype,), device)
    kv_heads = tree_keys.shape[2]
    require(kv_heads > 0 and heads % kv_heads == 0, f"{heads} query heads are no multiple of {kv_heads} KV heads")
    require_tensor("tree_values", tree_values, tuple(tree_keys.shape), (query.dtype,), device)
    require_tensor("key_pool", key_pool, (None, kv_heads, size), (query.dtype, *FLOAT8), device)
    require_tensor("value_pool", value_pool, tuple(key_pool.shape), (key_pool.dtype,), device)
    require_tensor("prefix_lens", prefix_lens, (batch,), INTEGERS, device)
    require_tensor("tree.depths", tree.depths, (batch, nodes), (torch.int32,), device)
    require_tensor("tree.ancestors", tree.ancestors, (batch, nodes, -(-nodes // 64)), (torch.int64,), device)
    for name, number in (("page_size", page_size), ("window", window), ("longest", longest)):
        if number is not None:
            require_whole(**{name: number})
            require(number >= 1, f"{name} is {number}, allowed is 1 or more")
    _check_table(table, rows, batch, device)
    if device.type == "cpu":
        check_tree(tree)
    attend = implementation("attention", device).tree_attention
    scale = size**-0.5 if scale is None else scale
    settings = (page_size, rows, scale, window, longest or table.shape[-1] * page_size)
    out: torch.Tensor = attend(query, tree_keys, tree_values, key_pool, value_pool, table, prefix_lens, tree, *settings)
    return out


def _check_table(table: torch.Tensor, rows: torch.Tensor | None, batch: int, device: torch.device) -> None:
    require(table.dim() in (1, 2), f"table has shape {list(table.shape)}, allowed is [rows, entries] or [entries]")
    require_tensor("table", table, (None,) * table.dim(), INTEGERS, device)
    require(rows is not None or table.dim() == 2, "a one-dimensional table needs `rows`, each request's first entry")
    if rows is not None:
        require_tensor("rows", rows, (batch,), INTEGERS, device)
    else:
        require(table.shape[0] >= batch, f"table has {table.shape[0]} rows, the batch needs {batch}")
