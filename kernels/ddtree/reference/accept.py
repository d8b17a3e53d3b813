"""The acceptance walk over Python lists."""

import torch

from ddtree.accept import Acceptance
from ddtree.tree import Tree


def walk(tree: Tree, targets: torch.Tensor, out: Acceptance) -> None:
    """Write all fields of `out`."""
    paths, emitted = [], []
    columns = (tree.tokens, tree.first_child, tree.next_sibling, targets)
    for token, child, sibling, target in zip(*(column.tolist() for column in columns), strict=True):
        path = _path(token, child, sibling, target)
        paths.append(path)
        emitted.append([target[node] for node in path])
    width = tree.draft_depth + 1
    out.node_index.copy_(_padded(paths, width))
    out.lengths.copy_(torch.tensor([len(path) for path in paths], dtype=torch.int32))
    out.bonus_tokens.copy_(torch.tensor([row[-1] for row in emitted], dtype=torch.int32))
    out.emitted.copy_(_padded(emitted, width))


def _path(token: list[int], child: list[int], sibling: list[int], target: list[int]) -> list[int]:
    path, node = [0], child[0]
    for _ in token:  # no walk along a tree's links meets a node twice
        if node < 0:
            return path
        if token[node] == target[path[-1]]:
            path.append(node)
            node = child[node]
        else:
            node = sibling[node]
    raise ValueError("the tree's first_child and next_sibling lead in a circle")


def _padded(rows: list[list[int]], width: int) -> torch.Tensor:
    return torch.tensor([row + [-1] * (width - len(row)) for row in rows], dtype=torch.int32)
