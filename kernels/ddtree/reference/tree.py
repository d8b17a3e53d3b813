"""Best-first search with a binary heap, one request after the other."""

from ctypes import c_float
from heapq import heappop, heappush
from math import inf
from typing import Any

import torch

from ddtree.tree import INT32_FIELDS, Tree

# (cost, depth, parent, rank): the canonical key. Costs are negated scores, so the smallest key is the next node.
Node = tuple[float, int, int, int]


def build_tree(
    log_probs: torch.Tensor,
    token_ids: torch.Tensor,
    root_tokens: torch.Tensor,
    budgets: int | torch.Tensor,
    chain: bool,
    out: Tree,
) -> None:
    """Write all fields of `out`."""
    batch, max_nodes = out.tokens.shape
    limits = budgets.tolist() if isinstance(budgets, torch.Tensor) else [budgets] * batch
    costs = _costs(log_probs).tolist()
    nodes = [select(costs[b], limits[b], chain) for b in range(batch)]
    rows = [
        _fields(found, ids, root, max_nodes)
        for found, ids, root in zip(nodes, token_ids.tolist(), root_tokens.tolist(), strict=True)
    ]
    for name, column in zip((*INT32_FIELDS, "scores", "ancestors"), zip(*rows, strict=True), strict=True):
        field: torch.Tensor = getattr(out, name)
        field.copy_(torch.tensor(column, dtype=field.dtype))
    out.sizes.copy_(torch.tensor([len(found) + 1 for found in nodes], dtype=torch.int32))


def _costs(log_probs: torch.Tensor) -> torch.Tensor:
    return torch.nan_to_num(-log_probs, nan=inf, posinf=inf).clamp(min=0.0)


def select(costs: list[list[float]], budget: int, chain: bool) -> list[Node]:
    """The chosen nodes in canonical order; node i of the tree is element i - 1."""
    spine = _spine(costs, budget) if chain else []
    found: list[Node] = []
    frontier: list[Node] = []
    _push(frontier, costs, 0.0, 1, 0, 0)
    path = [0.0]  # cost of each node by index
    tail, taken = 0, 0  # last node of the chain that is in the tree, and how many are
    while len(found) < budget:
        forced = budget - len(found) == len(spine) - taken
        if forced:
            node = (spine[taken], taken + 1, tail, 0)
        elif frontier:
            node = heappop(frontier)
        else:
            break
        found.append(node)
        cost, depth, parent, rank = node
        path.append(cost)
        if taken < len(spine) and parent == tail and rank == 0:
            tail, taken = len(found), taken + 1
        _push(frontier, costs, path[parent], depth, parent, rank + 1)
        _push(frontier, costs, cost, depth + 1, len(found), 0)
    return found


def _push(frontier: list[Node], costs: list[list[float]], base: float, depth: int, parent: int, rank: int) -> None:
    if depth <= len(costs) and rank < len(costs[0]):
        # A double sum of two floats rounds to the float32 sum.
        cost = c_float(base + costs[depth - 1][rank]).value
        if cost < inf:
            heappush(frontier, (cost, depth, parent, rank))


def _spine(costs: list[list[float]], budget: int) -> list[float]:
    total, spine = 0.0, []
    for row in costs[:budget]:
        total = c_float(total + row[0]).value
        if total == inf:
            break
        spine.append(total)
    return spine


def _fields(found: list[Node], ids: list[list[int]], root: int, size: int) -> tuple[list[Any], ...]:
    pad = size - len(found) - 1
    tokens = [root, *(ids[depth - 1][rank] for _, depth, _, rank in found)] + [0] * pad
    parents = [-1, *(node[2] for node in found)] + [-1] * pad
    depths = [0, *(node[1] for node in found)] + [0] * pad
    ranks = [-1, *(node[3] for node in found)] + [-1] * pad
    scores = [0.0, *(-node[0] for node in found)] + [-inf] * pad
    return tokens, parents, depths, ranks, *_links(parents), scores, _words(parents)


def _links(parents: list[int]) -> tuple[list[int], list[int]]:
    child, sibling, last = [-1] * len(parents), [-1] * len(parents), [-1] * len(parents)
    for node, parent in enumerate(parents):
        if parent < 0:
            continue
        if last[parent] < 0:
            child[parent] = node
        else:
            sibling[last[parent]] = node
        last[parent] = node
    return child, sibling


def _words(parents: list[int]) -> list[list[int]]:
    masks: list[int] = []
    for node, parent in enumerate(parents):
        masks.append((masks[parent] if parent >= 0 else 0) | 1 << node)
    count = -(-len(parents) // 64)
    return [[_signed(mask >> 64 * word & 0xFFFFFFFFFFFFFFFF) for word in range(count)] for mask in masks]


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word
