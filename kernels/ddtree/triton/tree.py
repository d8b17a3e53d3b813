# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Best-first search with one warp per request and no memory traffic but two loads a node.

The frontier is one slot per node of the tree: the slot of node i holds the best child of i that is not in the tree
yet. A step takes the least key over all slots, which a warp finds with shuffles, gives the parent's slot its next
sibling, and opens a slot for the new node. A key is an int64 of (cost, depth, parent, rank), so that the minimum is
the canonical order itself.
"""

import torch
import triton
import triton.language as tl

from ddtree.checks import require

MAX_NODES = 256
NEVER = tl.constexpr(2**63 - 1)


@triton.jit
def cost_of(log_probs, depth, rank, D, K):
    """Cost of the token of this rank at this depth (1-based): -log_prob, 0 if that is negative, inf for NaN or out of
    range.
    """
    x = tl.load(log_probs + (depth - 1) * K + rank, mask=(depth <= D) & (rank < K), other=float("-inf"))
    return tl.where(x <= 0, -x, tl.where(x > 0, 0.0, float("inf")))


@triton.jit
def key_of(cost, depth, parent, rank):
    bits = cost.to(tl.int32, bitcast=True).to(tl.int64)
    key = (bits << 24) + (depth * 65536 + parent * 256 + rank)
    return tl.where(cost < float("inf"), key, NEVER)


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
    parents = tl.full([NP], -1, tl.int32)
    ranks = tl.full([NP], -1, tl.int32)
    depths = tl.zeros([NP], tl.int32)
    children = tl.full([NP], -1, tl.int32)
    siblings = tl.full([NP], -1, tl.int32)

    first = key_of(0.0 + cost_of(log_probs, 1, 0, D, K), 1, 0, 0)
    keys = tl.where(slot == 0, first, NEVER)
    key = first
    left = 0
    if CHAIN:
        left = chain_length(log_probs, limit, D, K)
    tail = 0
    chain_key = first
    node = 1
    while (node <= limit) & (key < NEVER):
        cost = (key >> 24).to(tl.int32).to(tl.float32, bitcast=True)
        low = (key & 0xFFFFFF).to(tl.int32)
        depth = low >> 16
        parent = (low >> 8) & 0xFF
        rank = low & 0xFF
        sibling_cost = cost_of(log_probs, depth, rank + 1, D, K)
        child_cost = cost_of(log_probs, depth + 1, 0, D, K)
        child_key = key_of(cost + child_cost, depth + 1, node, 0)
        is_parent = slot == parent
        is_new = slot == node
        keys = tl.where(is_parent, key_of(path + sibling_cost, depth, parent, rank + 1), keys)
        keys = tl.where(is_new, child_key, keys)
        path = tl.where(is_new, cost, path)
        siblings = tl.where((parents == parent) & (ranks == rank - 1), node, siblings)
        children = tl.where(is_parent & (rank == 0), node, children)
        parents = tl.where(is_new, parent, parents)
        ranks = tl.where(is_new, rank, ranks)
        depths = tl.where(is_new, depth, depths)
        node += 1
        key = tl.min(keys, axis=0)
        if CHAIN:
            on_chain = (left > 0) & (parent == tail) & (rank == 0)
            left -= on_chain.to(tl.int32)
            tail = tl.where(on_chain, node - 1, tail)
            chain_key = tl.where(on_chain, child_key, chain_key)
            key = tl.where((left > 0) & (limit - node + 1 == left), chain_key, key)

    real = slot < node
    drafted = real & (slot > 0)
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
    max_nodes: int,
    chain: bool,
) -> dict[str, torch.Tensor]:
    """Fields of `ddtree.tree.Tree` by name, without draft_depth."""
    batch, depth, k = log_probs.shape
    require(max_nodes <= MAX_NODES, f"max_nodes is {max_nodes}, allowed on CUDA is 2 to {MAX_NODES}")
    require(k <= 256, f"log_probs has {k} candidates a depth, allowed on CUDA is 1 to 256")
    require(depth <= 255, f"log_probs has {depth} depths, allowed on CUDA is 1 to 255")
    device, words = log_probs.device, triton.cdiv(max_nodes, 64)
    integers = torch.empty(6, batch, max_nodes, dtype=torch.int32, device=device)
    scores = torch.empty(batch, max_nodes, device=device)
    ancestors = torch.empty(batch, max_nodes, words, dtype=torch.int64, device=device)
    sizes = torch.empty(batch, dtype=torch.int32, device=device)
    ragged = isinstance(budgets, torch.Tensor)
    build[(batch,)](
        log_probs.contiguous(),
        token_ids.contiguous(),
        root_tokens,
        budgets if ragged else sizes,
        0 if ragged else budgets,
        *integers,
        scores,
        ancestors,
        sizes,
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
    names = ("tokens", "parents", "depths", "ranks", "first_child", "next_sibling")
    fields = dict(zip(names, integers, strict=True))
    return {**fields, "scores": scores, "ancestors": ancestors, "sizes": sizes}
