"""Best-first draft trees under a node budget (DDTree)."""

from dataclasses import dataclass
from typing import Any

import torch

from ddtree.checks import INTEGERS, require, require_buffer, require_tensor, require_whole
from ddtree.dispatch import implementation

INT32_FIELDS = ("tokens", "parents", "depths", "ranks", "first_child", "next_sibling")


@dataclass(frozen=True)
class Tree:
    """Draft trees of B requests, padded to N nodes; node 0 is the root: the token emitted last, whose KV is not
    cached yet.

    tokens, parents, depths, ranks, first_child, next_sibling: int32 [B,N]. Parents and links are -1 where there is
    none, ranks are -1 at the root; padding has token 0, depth 0, parent -1. scores float32 [B,N]: sum of log-probs, 0
    at the root, -inf in padding. ancestors int64 [B,N,W], W = ceil(N/64): bit j of node i is set iff j is i or an
    ancestor of i; padding has its own bit only. sizes int32 [B]: nodes incl. the root. draft_depth: D, the greatest
    depth that a node can have.
    """

    tokens: torch.Tensor
    parents: torch.Tensor
    depths: torch.Tensor
    ranks: torch.Tensor
    scores: torch.Tensor
    first_child: torch.Tensor
    next_sibling: torch.Tensor
    ancestors: torch.Tensor
    sizes: torch.Tensor
    draft_depth: int

    @classmethod
    def empty(cls, batch: int, nodes: int, draft_depth: int, device: torch.device | str) -> "Tree":
        """Unwritten buffers for the `out` of `build_tree`."""
        integers = torch.empty(6, batch, nodes, dtype=torch.int32, device=device)
        tokens, parents, depths, ranks, first_child, next_sibling = integers
        scores = torch.empty(batch, nodes, device=device)
        ancestors = torch.empty(batch, nodes, -(-nodes // 64), dtype=torch.int64, device=device)
        sizes = torch.empty(batch, dtype=torch.int32, device=device)
        links = (first_child, next_sibling)
        return cls(tokens, parents, depths, ranks, scores, *links, ancestors, sizes, draft_depth)


def build_tree(
    log_probs: torch.Tensor,
    token_ids: torch.Tensor,
    root_tokens: torch.Tensor,
    budgets: int | torch.Tensor,
    *,
    max_nodes: int,
    chain: bool = False,
    out: Tree | None = None,
) -> Tree:
    """The `budget` most probable prefixes of log_probs [B,D,K] (each row non-increasing), as in DDTree's best-first
    search.

    Order, and so numbering: score descending, depth ascending, parent ascending, rank ascending; a score is the
    float32 sum from the root down. Prefixes of probability zero (log-prob -inf) are never nodes, so a tree may stay
    below its budget; NaN counts as -inf and a positive log-prob as 0. `chain` first takes the greedy chain, min(D,
    budget) nodes of rank 0, then fills best-first. The budget excludes the root. Integer budgets, and budget tensors
    on the CPU, must be 1 to max_nodes - 1; a budget tensor on CUDA is clamped to that range instead, since reading it
    would wait for the device. `out`, as from `Tree.empty`, is written in place and returned, so that addresses stay
    the same from step to step.
    """
    device = log_probs.device
    require_tensor("log_probs", log_probs, (None, None, None), (torch.float32,), device)
    require(min(log_probs.shape) > 0, f"log_probs has shape {list(log_probs.shape)}, every size must be positive")
    require_tensor("token_ids", token_ids, tuple(log_probs.shape), INTEGERS, device)
    require_tensor("root_tokens", root_tokens, (log_probs.shape[0],), INTEGERS, device)
    require_whole(max_nodes=max_nodes)
    require(max_nodes >= 2, f"max_nodes is {max_nodes}, allowed is 2 or more (the root and one draft)")
    if isinstance(budgets, torch.Tensor):
        require_tensor("budgets", budgets, (log_probs.shape[0],), INTEGERS, device)
    else:
        require_whole(budgets=budgets)
    if not isinstance(budgets, torch.Tensor) or device.type == "cpu":
        _check_budgets(budgets, max_nodes)
    batch, draft_depth, _ = log_probs.shape
    if out is None:
        out = Tree.empty(batch, max_nodes, draft_depth, device)
    else:
        _check_out(out, batch, max_nodes, draft_depth, device)
    implementation("tree", device).build_tree(log_probs, token_ids, root_tokens, budgets, chain, out)
    return out


def _check_out(out: Tree, batch: int, nodes: int, draft_depth: int, device: torch.device) -> None:
    wanted: dict[str, tuple[Any, ...]] = dict.fromkeys(INT32_FIELDS, (torch.int32, batch, nodes))
    wanted |= {"scores": (torch.float32, batch, nodes), "sizes": (torch.int32, batch)}
    wanted |= {"ancestors": (torch.int64, batch, nodes, -(-nodes // 64))}
    for name, (dtype, *shape) in wanted.items():
        require_buffer(f"out.{name}", getattr(out, name), shape, dtype, device)
    require(out.draft_depth == draft_depth, f"out.draft_depth is {out.draft_depth}, log_probs has {draft_depth} depths")


def check_tree(tree: Tree) -> None:
    """Raise ValueError where parents, depths, links and ancestor bits are not those of one tree. Waits for the device:
    use outside of captured graphs, on trees that build_tree did not make.
    """
    batch, nodes = tree.parents.shape
    words = (batch, nodes, -(-nodes // 64))
    require_tensor("tree.ancestors", tree.ancestors, words, (torch.int64,), tree.parents.device)
    bad = (~_consistent(tree)).nonzero()
    require(bad.numel() == 0, f"links, depth or ancestor bits of request, node {bad[:4].tolist()} are not a tree's")


def _consistent(tree: Tree) -> torch.Tensor:
    """bool [B,N]. Parents come first, so that a node's bits are right if they are its own and its parent's."""
    (_, nodes, words), device = tree.ancestors.shape, tree.ancestors.device
    node, size, parents = torch.arange(nodes, device=device), tree.sizes[:, None], tree.parents.long()
    drafted = (node > 0) & (node < size)
    ordered = torch.where(drafted, (parents >= 0) & (parents < node), parents == -1) & (size > 0) & (size <= nodes)
    at = parents.clamp(0, nodes - 1)
    depths = torch.where(drafted, tree.depths.gather(1, at) + 1, 0)
    bits = torch.zeros(nodes, words, dtype=torch.int64, device=device)
    bits[node, node // 64] = torch.ones_like(node) << node % 64
    inherited = tree.ancestors.gather(1, at[:, :, None].expand(-1, -1, words))
    ancestors = bits | torch.where(drafted[:, :, None], inherited, 0)
    for links, shared in ((tree.first_child.long(), node), (tree.next_sibling.long(), parents)):
        theirs = parents.gather(1, links.clamp(0, nodes - 1))
        ordered &= (links == -1) | ((links > node) & (links < nodes) & (theirs == shared))
    fits = (tree.depths == depths) & (depths <= tree.draft_depth) & (tree.ancestors == ancestors).all(-1)
    return ordered & fits


def _check_budgets(budgets: int | torch.Tensor, max_nodes: int) -> None:
    values = budgets.tolist() if isinstance(budgets, torch.Tensor) else [budgets]
    for budget in values:
        require(0 < budget < max_nodes, f"budget is {budget}, allowed is 1 to max_nodes - 1 = {max_nodes - 1}")
