"""Random inputs at the sizes of real models."""

from dataclasses import dataclass
from typing import Any

import torch

import ddtree

ROWS = (32, 64, 128, 192, 256, 384, 512)
"""Query rows that share a KV head, of which tile sizes are sought: query heads a KV head times tree nodes."""


def logits(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Logits with a clear best token now and then, as a language model has."""
    return (torch.randn(shape, device="cuda") * 2.5).to(dtype)


def tree(batch: int, nodes: int, depth: int = 15, k: int = 16) -> ddtree.Tree:
    """Trees that fill their budget."""
    top = ddtree.topk_logprobs(logits(batch, depth, 4096), k)
    roots = torch.zeros(batch, dtype=torch.int32, device="cuda")
    return ddtree.build_tree(top.log_probs, top.token_ids, roots, nodes - 1, max_nodes=nodes)


@dataclass(frozen=True)
class Attention:
    """Arguments of tree_attention; `page` and `window` are its options."""

    query: torch.Tensor
    tree_keys: torch.Tensor
    tree_values: torch.Tensor
    key_pool: torch.Tensor
    value_pool: torch.Tensor
    table: torch.Tensor
    prefix_lens: torch.Tensor
    tree: ddtree.Tree
    page: int = 1
    window: int | None = None

    def arguments(self) -> dict[str, Any]:
        """The tensors by name."""
        return {name: value for name, value in vars(self).items() if name not in ("page", "window")}

    def run(self) -> torch.Tensor:
        """Call the public function."""
        return ddtree.tree_attention(**self.arguments(), page_size=self.page, window=self.window)


def attention(
    batch: int,
    context: int | list[int],
    nodes: int,
    *,
    heads: int = 32,
    kv_heads: int = 8,
    size: int = 128,
    page: int = 1,
    dtype: torch.dtype = torch.bfloat16,
    window: int | None = None,
    pool_dtype: torch.dtype | None = None,
) -> Attention:
    """Requests whose slots are scattered over a pool, which is of `dtype` unless told otherwise."""

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device="cuda", dtype=dtype)

    lengths = [context] * batch if isinstance(context, int) else context
    pages = max(1, -(-max(lengths) // page))
    table = torch.randperm(batch * pages, device="cuda").view(batch, pages).int()
    return Attention(
        normal(batch, nodes, heads, size),
        normal(batch, nodes, kv_heads, size),
        normal(batch, nodes, kv_heads, size),
        normal(batch * pages * page, kv_heads, size).to(pool_dtype or dtype),
        normal(batch * pages * page, kv_heads, size).to(pool_dtype or dtype),
        table,
        torch.tensor(lengths, dtype=torch.int32, device="cuda"),
        tree(batch, nodes),
        page,
        window,
    )
