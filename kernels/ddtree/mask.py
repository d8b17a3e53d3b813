"""What a tree node may attend to, and where it sits in the sequence."""

import torch

from ddtree.checks import INTEGERS, require, require_tensor
from ddtree.dispatch import implementation
from ddtree.tree import Tree, check_tree


def ancestor_mask(tree: Tree) -> torch.Tensor:
    """bool [B,N,N]: node i attends to node j iff j is i or an ancestor of i."""
    mask: torch.Tensor = implementation("mask", tree.tokens.device).ancestor_mask(tree.ancestors)
    return mask


def positions(tree: Tree, prefix_lens: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """[B,N] in the dtype of prefix_lens [B]: prefix length + depth. Padding sits at the root's position. `out`
    (int32 or int64) is written in place and returned.
    """
    require_tensor("prefix_lens", prefix_lens, (tree.tokens.shape[0],), INTEGERS, tree.tokens.device)
    if out is not None:
        require_tensor("out", out, tuple(tree.tokens.shape), INTEGERS, tree.tokens.device)
    return torch.add(prefix_lens[:, None], tree.depths, out=out)


def sglang_mask(
    tree: Tree, prefix_lens: torch.Tensor, *, out: torch.Tensor | None = None, fill_prefix: bool = True
) -> torch.Tensor:
    """SGLang's FULL_MASK layout: uint8, per request N rows of prefix_len + N columns, flattened one request after the
    other.

    `out` (1-D uint8, long enough) is written in place and returned; CUDA needs it, because the length is only known
    to the device. `fill_prefix=False` leaves the prefix columns alone, for a buffer whose reader skips them.
    """
    require_tensor("prefix_lens", prefix_lens, (tree.tokens.shape[0],), INTEGERS, tree.tokens.device)
    cpu = tree.tokens.device.type == "cpu"
    require(out is not None or cpu, "sglang_mask needs `out` on CUDA: a uint8 buffer of sum(N * (prefix + N)) bytes")
    if cpu:
        check_tree(tree)
        require(bool((prefix_lens >= 0).all()), f"prefix_lens is {prefix_lens.tolist()}, allowed is 0 or more")
        nodes = tree.tokens.shape[1]
        length = int((nodes * (prefix_lens.long() + nodes)).sum())
        out = torch.empty(length, dtype=torch.uint8) if out is None else out
        require(out.numel() >= length, f"out holds {out.numel()} bytes, the mask needs {length}")
    assert out is not None
    require_tensor("out", out, (None,), (torch.uint8,), tree.tokens.device)
    implementation("mask", tree.tokens.device).sglang_mask(tree.ancestors, prefix_lens, out, fill_prefix)
    return out
