# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Best-first search with one warp per request and no memory traffic but two loads a node.

The frontier is one slot per node of the tree: the slot of node i holds the best child of i that is not in the tree
yet. A step takes the least slot, gives the parent's slot its next sibling, and opens a slot for the new node. A slot's
key is a pair of int32, the bits of its cost and its (depth, parent, rank), so that the least pair is the canonical
order itself; each half of the minimum is one warp-wide integer reduction in hardware.
"""

import torch
import triton
import triton.language as tl

from ddtree.checks import require, require_contiguous
from ddtree.tree import Tree

MAX_NODES = 256
NEVER = tl.constexpr(0x7F800000)  # the bits of an infinite cost


@triton.jit
def cost_of(log_probs, depth, rank, D, K):
    """Cost of the token of this rank at this depth (1-based): -log_prob, 0 if that is negative, inf for NaN or out of
    range.
    """
    x = tl.load(log_probs + (depth - 1) * K + rank, mask=(depth <= D) & (rank < K), other=float("-inf"))
    return tl.where(x <= 0, -x, tl.where(x > 0, 0.0, float("inf")))


@triton.jit
def bits_of(cost):
    """int32 in the order of a cost, which is never negative; the sum makes -0.0 a plain zero."""
    return (0.0 + cost).to(tl.int32, bitcast=True)


@triton.jit
def chain_length(log_probs, limit, D, K):
    length = 0
    total = 0.0
    for depth in range(1, tl.minimum(D, limit) + 1):
        total += cost_of(log_probs, depth, 0, D, K)
        length += (total < float("inf")).to(tl.int32)
    return length


@triton.jit
def build(
    log_probs,
    token_ids,
    root_tokens,
    budgets,
    budget,
    tokens,
    parents_out,
    depths_out,
    ranks_out,
    children_out,
    siblings_out,
    scores,
    ancestors,
    sizes,
    D,
    K,
    N,
    stride_b,
    BUDGETS: tl.constexpr,
    CHAIN: tl.constexpr,
    NP: tl.constexpr,
    WORDS: tl.constexpr,
    WP: tl.constexpr,
):
    request = tl.program_id(0)
    limit = budget
    if BUDGETS:
        limit = tl.load(budgets + request).to(tl.int32)
    limit = tl.minimum(tl.maximum(limit, 1), N - 1)
    log_probs += request.to(tl.int64) * stride_b
    slot = tl.arange(0, NP)
    path = tl.zeros([NP], tl.float32)
    codes = tl.full([NP], -2, tl.int32)  # (depth, parent, rank) of each node
    children = tl.full([NP], -1, tl.int32)
    siblings = tl.full([NP], -1, tl.int32)

    cost = bits_of(cost_of(log_probs, 1, 0, D, K))
    code = tl.full([], 65536, tl.int32)
    costs = tl.where(slot == 0, cost, NEVER)
    nexts = tl.full([NP], 65536, tl.int32)
    left = 0
    if CHAIN:
        left = chain_length(log_probs, limit, D, K)
    tail = 0
    chain_cost, chain_code = cost, code
    node = 1
    while (node <= limit) & (cost < NEVER):
        depth = code >> 16
        parent = (code >> 8) & 0xFF
        rank = code & 0xFF
        total = cost.to(tl.float32, bitcast=True)
        sibling_cost = bits_of(path + cost_of(log_probs, depth, rank + 1, D, K))
        child_cost = bits_of(total + cost_of(log_probs, depth + 1, 0, D, K))
        child_code = (depth + 1) * 65536 + node * 256
        is_parent = slot == parent
        is_new = slot == node
        costs = tl.where(is_new, child_cost, tl.where(is_parent, sibling_cost, costs))
        nexts = tl.where(is_new, child_code, tl.where(is_parent, code + 1, nexts))
        path = tl.where(is_new, total, path)
        siblings = tl.where(codes == tl.where(rank > 0, code - 1, -1), node, siblings)
        children = tl.where(is_parent & (rank == 0), node, children)
        codes = tl.where(is_new, code, codes)
        node += 1
        cost = tl.min(costs, axis=0)
        code = tl.min(tl.where(costs == cost, nexts, 0x7FFFFFFF), axis=0)
        if CHAIN:
            on_chain = (left > 0) & (parent == tail) & (rank == 0)
            left -= on_chain.to(tl.int32)
            tail = tl.where(on_chain, node - 1, tail)
            chain_cost = tl.where(on_chain, child_cost, chain_cost)
            chain_code = tl.where(on_chain, child_code, chain_code)
            forced = (left > 0) & (limit - node + 1 == left)
            cost = tl.where(forced, chain_cost, cost)
            code = tl.where(forced, chain_code, code)

    real = slot < node
    drafted = real & (slot > 0)
    parents = tl.where(drafted, (codes >> 8) & 0xFF, -1)
    ranks = tl.where(drafted, codes & 0xFF, -1)
    depths = tl.where(drafted, codes >> 16, 0)
    out = request.to(tl.int64) * N + slot
    stored = slot < N
    ids = token_ids + request.to(tl.int64) * stride_b + (depths - 1) * K + ranks
    token = tl.load(ids, mask=drafted, other=0).to(tl.int32)
    root = tl.load(root_tokens + request).to(tl.int32)
    tl.store(tokens + out, tl.where(slot == 0, root, token), mask=stored)
    tl.store(parents_out + out, parents, mask=stored)
    tl.store(depths_out + out, depths, mask=stored)
    tl.store(ranks_out + out, ranks, mask=stored)
    tl.store(children_out + out, children, mask=stored)
    tl.store(siblings_out + out, siblings, mask=stored)
    tl.store(scores + out, tl.where(real, 0.0 - path, float("-inf")), mask=stored)
    tl.store(sizes + request, node)

    word = tl.arange(0, WP)
    bits = tl.zeros([NP, WP], tl.int64)
    at = slot
    for _ in range(0, tl.max(depths, axis=0) + 1):
        one = tl.full([NP], 1, tl.int64) << (at & 63).to(tl.int64)
        bits |= tl.where((at[:, None] >> 6) == word[None, :], one[:, None], 0)
        at = tl.where(at < 0, at, tl.gather(parents, tl.maximum(at, 0), 0))
    where = ancestors + out[:, None] * WORDS + word[None, :]
    tl.store(where, bits, mask=stored[:, None] & (word[None, :] < WORDS))


def build_tree(
    log_probs: torch.Tensor,
    token_ids: torch.Tensor,
    root_tokens: torch.Tensor,
    budgets: int | torch.Tensor,
    chain: bool,
    out: Tree,
) -> None:
    """Write all fields of `out`."""
    (batch, depth, k), max_nodes = log_probs.shape, out.tokens.shape[1]
    require(max_nodes <= MAX_NODES, f"max_nodes is {max_nodes}, allowed on CUDA is 2 to {MAX_NODES}")
    require(k <= 256, f"log_probs has {k} candidates a depth, allowed on CUDA is 1 to 256")
    require(depth <= 255, f"log_probs has {depth} depths, allowed on CUDA is 1 to 255")
    require_contiguous(root_tokens=root_tokens)
    words = out.ancestors.shape[2]
    ragged = isinstance(budgets, torch.Tensor)
    if isinstance(budgets, torch.Tensor):
        require_contiguous(budgets=budgets)
    build[(batch,)](
        log_probs.contiguous(),
        token_ids.contiguous(),
        root_tokens,
        budgets if ragged else out.sizes,
        0 if ragged else budgets,
        out.tokens,
        out.parents,
        out.depths,
        out.ranks,
        out.first_child,
        out.next_sibling,
        out.scores,
        out.ancestors,
        out.sizes,
        depth,
        k,
        max_nodes,
        depth * k,
        BUDGETS=ragged,
        CHAIN=chain,
        NP=triton.next_power_of_2(max_nodes),
        WORDS=words,
        WP=triton.next_power_of_2(words),
        num_warps=1,
    )
