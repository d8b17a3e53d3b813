"""trees.json: an arm's draft trees."""

from __future__ import annotations

from itertools import pairwise

from pydantic import model_validator

from orchestrator.records.base import Record


class TreeNode(Record):
    """As engines.base.DraftNode."""

    token_id: int
    text: str
    parent: int
    depth: int
    log_prob: float


class TreeStep(Record):
    """As engines.base.DraftTree. ValueError where the nodes are not those of one tree with the accepted path in it."""

    nodes: list[TreeNode]
    accepted: list[int]
    bonus_id: int
    bonus_text: str

    @model_validator(mode="after")
    def _is_a_tree(self) -> TreeStep:
        parents = [node.parent for node in self.nodes]
        if not parents or any(not 0 <= parent < node for node, parent in enumerate(parents[1:], 1)):
            raise ValueError("the nodes are no tree: a parent is missing or comes after its child")
        depths = [0, *(self.nodes[parent].depth + 1 for parent in parents[1:])]
        if depths != [node.depth for node in self.nodes]:
            raise ValueError("the nodes' depths are not those of their parents")
        path = self.accepted
        if not path or path[0] or any(not 0 < b < len(parents) or parents[b] != a for a, b in pairwise(path)):
            raise ValueError("the accepted nodes are no path from the root")
        return self


class DraftTrees(Record):
    """trees.json: the first verify steps of one prompt, decoded once more after the load and counted in nothing.
    `problem` says why there are none."""

    prompt_id: str
    steps: list[TreeStep]
    problem: str = ""
