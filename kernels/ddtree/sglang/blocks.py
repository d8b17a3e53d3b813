"""A drafter's block as a tree, for its attention."""

import torch

from ddtree.tree import Tree


def block_tree(rows: int, block: int, causal: bool, device: torch.device | str) -> Tree:
    """R trees of B nodes that all see each other, or in a causal layer the nodes before them. Only depths and ancestor
    bits are set.
    """
    tree = Tree.empty(rows, block, block - 1, device)
    seen = torch.ones(block, block, dtype=torch.bool)
    tree.depths.copy_(torch.arange(block, dtype=torch.int32))
    tree.ancestors.copy_(ancestor_bits(seen.tril() if causal else seen))
    return tree


def ancestor_bits(seen: torch.Tensor) -> torch.Tensor:
    """int64 [B, ceil(B / 64)] of a boolean [B,B]: bit j of row i."""
    block = seen.shape[0]
    words = -(-block // 64)
    padded = torch.zeros(block, words * 64, dtype=torch.int64)
    padded[:, :block] = seen
    return (padded.view(block, words, 64) << torch.arange(64)).sum(-1)
