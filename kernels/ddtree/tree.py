"""Best-first draft trees under a node budget (DDTree)."""

from dataclasses import dataclass

import torch

from ddtree.checks import INTEGERS, require, require_tensor
from ddtree.dispatch import implementation


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


def build_tree(
    log_probs: torch.Tensor,
    token_ids: torch.Tensor,
    root_tokens: torch.Tensor,
    budgets: int | torch.Tensor,
    *,
    max_nodes: int,
    chain: bool = False,
) -> Tree:
    """The `budget` most probable prefixes of log_probs [B,D,K] (each row non-increasing), as in DDTree's best-first
    search.

    Order, and so numbering: score descending, depth ascending, parent ascending, rank ascending; a score is the
    float32 sum from the root down. Prefixes of probability zero (log-prob -inf) are never nodes, so a tree may stay
    below its budget; NaN counts as -inf and a positive log-prob as 0. `chain` first takes the greedy chain, min(D,
    budget) nodes of rank 0, then fills best-first. The budget excludes the root. Integer budgets, and budget tensors
    on the CPU, must be 1 to max_nodes - 1; a budget tensor on CUDA is clamped to that range instead, since reading it
    would wait for the device.
    """
    device = log_probs.device
    require_tensor("log_probs", log_probs, (None, None, None), (torch.float32,), device)
    require(min(log_probs.shape) > 0, f"log_probs has shape {list(log_probs.shape)}, every size must be positive")
    require_tensor("token_ids", token_ids, tuple(log_probs.shape), INTEGERS, device)
    require_tensor("root_tokens", root_tokens, (log_probs.shape[0],), INTEGERS, device)
    require(max_nodes >= 2, f"max_nodes is {max_nodes}, allowed is 2 or more (the root and one draft)")
    if isinstance(budgets, torch.Tensor):
        require_tensor("budgets", budgets, (log_probs.shape[0],), INTEGERS, device)
    if not isinstance(budgets, torch.Tensor) or device.type == "cpu":
        _check_budgets(budgets, max_nodes)
    build = implementation("tree", device).build_tree
    fields = build(log_probs, token_ids, root_tokens, budgets, max_nodes, chain)
    return Tree(**fields, draft_depth=log_probs.shape[1])


def _check_budgets(budgets: int | torch.Tensor, max_nodes: int) -> None:
    values = budgets.tolist() if isinstance(budgets, torch.Tensor) else [budgets]
    for budget in values:
        require(0 < budget < max_nodes, f"budget is {budget}, allowed is 1 to max_nodes - 1 = {max_nodes - 1}")
