"""Which path of a verified tree the target accepts."""

from dataclasses import dataclass

import torch

from ddtree.checks import INTEGERS, require_tensor
from ddtree.dispatch import implementation
from ddtree.tree import Tree


@dataclass(frozen=True)
class Acceptance:
    """The accepted path of each request, all int32.

    node_index [B,D+1]: nodes root first, -1 padded. lengths [B]: nodes on the path incl. the root, which equals the
    tokens emitted in this step. bonus_tokens [B]: the target's token after the last node. emitted [B,D+1]: accepted
    drafts, then the bonus, -1 padded.
    """

    node_index: torch.Tensor
    lengths: torch.Tensor
    bonus_tokens: torch.Tensor
    emitted: torch.Tensor


def accept_greedy(tree: Tree, target_tokens: torch.Tensor) -> Acceptance:
    """Walk from the root to the child that holds target_tokens[b, node], the argmax of the target's logits there,
    while one does.
    """
    require_tensor("target_tokens", target_tokens, tuple(tree.tokens.shape), INTEGERS, tree.tokens.device)
    walk = implementation("accept", tree.tokens.device).walk
    return Acceptance(*walk(tree, target_tokens))


def accept_sampled(tree: Tree, samples: torch.Tensor) -> Acceptance:
    """The same walk over one sample of the target per node.

    The emitted tokens are distributed exactly as the target's own sampling: each is the sample drawn at its prefix,
    whatever was drafted (sample-and-walk).
    """
    require_tensor("samples", samples, tuple(tree.tokens.shape), INTEGERS, tree.tokens.device)
    return accept_greedy(tree, samples)
