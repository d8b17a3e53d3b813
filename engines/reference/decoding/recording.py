"""Draft trees as they were verified, for people to look at."""

from torch import Tensor

from ddtree import Acceptance, Tree
from engines.reference.decoding.request import DraftTree


def recorded(tree: Tree, draft_logits: Tensor, acceptance: Acceptance) -> DraftTree:
    """The step of a batch's first request. draft_logits [B, depth, V].

    Scores are computed here: a chain that was drafted without a tree carries none.
    """
    size, length = int(tree.sizes[0]), int(acceptance.lengths[0])
    tokens, parents, depths = (field[0, :size].tolist() for field in (tree.tokens, tree.parents, tree.depths))
    log_probs = draft_logits[0].float().log_softmax(-1)
    scores = [0.0]
    for token, parent, depth in zip(tokens[1:], parents[1:], depths[1:], strict=True):
        scores.append(scores[parent] + float(log_probs[depth - 1, token]))
    return DraftTree(
        tokens=tokens,
        parents=parents,
        depths=depths,
        scores=scores,
        accepted=acceptance.node_index[0, :length].tolist(),
        bonus=int(acceptance.bonus_tokens[0]),
    )
