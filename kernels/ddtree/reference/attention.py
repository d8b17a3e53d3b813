"""Tree attention with dense scores in float32."""

import torch

from ddtree.checks import require
from ddtree.reference.mask import ancestor_mask
from ddtree.tree import Tree


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
) -> torch.Tensor:
    """As `ddtree.attention.tree_attention`."""
    mask, out = ancestor_mask(tree.ancestors), torch.empty_like(query)
    for request, prefix in enumerate(prefix_lens.tolist()):
        slots = _slots(table, rows, request, prefix, page_size)
        inside = bool(((slots >= 0) & (slots < len(key_pool))).all())
        require(inside, f"the table of request {request} names a slot outside of the pool of {len(key_pool)}")
        keys = torch.cat([key_pool[slots].float(), tree_keys[request].float()])
        values = torch.cat([value_pool[slots].float(), tree_values[request].float()])
        seen = torch.cat([mask.new_ones(query.shape[1], prefix), mask[request]], dim=1)
        if window is not None:
            depths = tree.depths[request].long()
            at = torch.cat([torch.arange(prefix), prefix + depths])
            seen &= at[None, :] > (prefix + depths)[:, None] - window
        out[request] = _attend(query[request].float(), keys, values, seen, scale).to(query.dtype)
    return out


def _slots(table: torch.Tensor, rows: torch.Tensor | None, request: int, prefix: int, page_size: int) -> torch.Tensor:
    row = request if rows is None else int(rows[request])
    require(0 <= row < len(table), f"rows of request {request} is {row}, the table has {len(table)}")
    entries = table[row:] if table.dim() == 1 else table[row]
    most = len(entries) * page_size
    require(0 <= prefix <= most, f"prefix_lens of request {request} is {prefix}, its table holds {most} positions")
    at = torch.arange(prefix)
    return entries[at // page_size].long() * page_size + at % page_size


def _attend(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, seen: torch.Tensor, scale: float
) -> torch.Tensor:
    group = query.shape[1] // keys.shape[1]
    keys, values = keys.repeat_interleave(group, dim=1), values.repeat_interleave(group, dim=1)
    scores = torch.einsum("nhe,khe->hnk", query, keys) * scale
    weights = scores.masked_fill(~seen, float("-inf")).softmax(dim=-1)
    return torch.einsum("hnk,khe->nhe", weights, values)
