# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""The acceptance walk, one warp per request with the whole tree in registers."""

import torch
import triton
import triton.language as tl

from ddtree.accept import Acceptance
from ddtree.checks import require_contiguous
from ddtree.tree import Tree


@triton.jit
def walk_tree(
    tokens,
    parents,
    targets,
    node_index,
    lengths,
    bonus_tokens,
    emitted,
    N,
    WIDTH,
    NP: tl.constexpr,
    WP: tl.constexpr,
):
    request = tl.program_id(0)
    node = tl.arange(0, NP)
    row = request.to(tl.int64) * N
    targets += row
    parent = tl.load(parents + row + node, mask=node < N, other=-1)
    token = tl.load(tokens + row + node, mask=node < N, other=0)
    wanted = tl.load(targets + tl.maximum(parent, 0), mask=parent >= 0, other=0)
    # The parent of a node that the target agrees with, else -1.
    agreed = tl.where((parent >= 0) & (wanted == token), parent, -1)

    step = tl.arange(0, WP)
    path = tl.where(step == 0, 0, -1)
    at = 0
    length = 1
    found = tl.min(tl.where(agreed == 0, node, NP), axis=0)
    while (found < NP) & (length < WIDTH):
        at = found
        path = tl.where(step == length, at, path)
        length += 1
        found = tl.min(tl.where(agreed == at, node, NP), axis=0)

    out = request.to(tl.int64) * WIDTH + step
    stored = step < WIDTH
    said = tl.load(targets + tl.maximum(path, 0), mask=stored & (path >= 0), other=-1).to(tl.int32)
    tl.store(node_index + out, path, mask=stored)
    tl.store(emitted + out, said, mask=stored)
    tl.store(lengths + request, length)
    tl.store(bonus_tokens + request, tl.load(targets + at).to(tl.int32))


def walk(tree: Tree, targets: torch.Tensor, out: Acceptance) -> None:
    """Write all fields of `out`."""
    require_contiguous(tokens=tree.tokens, parents=tree.parents)
    batch, nodes = tree.tokens.shape
    width = tree.draft_depth + 1
    sizes = {"NP": triton.next_power_of_2(nodes), "WP": triton.next_power_of_2(width)}
    results = (out.node_index, out.lengths, out.bonus_tokens, out.emitted)
    inputs = (tree.tokens, tree.parents, targets.contiguous())
    walk_tree[(batch,)](*inputs, *results, nodes, width, **sizes, num_warps=1)
