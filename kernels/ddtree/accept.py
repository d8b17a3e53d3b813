"""Which path of a verified tree the target accepts."""

from dataclasses import dataclass

import torch

from ddtree.checks import INTEGERS, require_buffer, require_tensor
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

    @classmethod
    def empty(cls, batch: int, draft_depth: int, device: torch.device | str) -> "Acceptance":
        """Unwritten buffers for an `out`."""
        node_index, emitted = torch.empty(2, batch, draft_depth + 1, dtype=torch.int32, device=device)
        lengths, bonus_tokens = torch.empty(2, batch, dtype=torch.int32, device=device)
        return cls(node_index, lengths, bonus_tokens, emitted)


def accept_greedy(tree: Tree, target_tokens: torch.Tensor, *, out: Acceptance | None = None) -> Acceptance:
    """Walk from the root to the child that holds target_tokens[b, node], the argmax of the target's logits there,
    while one does. `out`, as from `Acceptance.empty`, is written in place and returned.
    """
    require_tensor("target_tokens", target_tokens, tuple(tree.tokens.shape), INTEGERS, tree.tokens.device)
    batch, device = tree.tokens.shape[0], tree.tokens.device
    if out is None:
        out = Acceptance.empty(batch, tree.draft_depth, device)
    else:
        _check_out(out, batch, tree.draft_depth, device)
    implementation("accept", device).walk(tree, target_tokens, out)
    return out


def _check_out(out: Acceptance, batch: int, draft_depth: int, device: torch.device) -> None:
    for name in ("node_index", "emitted"):
        require_buffer(f"out.{name}", getattr(out, name), (batch, draft_depth + 1), torch.int32, device)
    for name in ("lengths", "bonus_tokens"):
        require_buffer(f"out.{name}", getattr(out, name), (batch,), torch.int32, device)


def accept_sampled(tree: Tree, samples: torch.Tensor, *, out: Acceptance | None = None) -> Acceptance:
    """The same walk over one sample of the target per node.

    The emitted tokens are distributed exactly as the target's own sampling: each is the sample drawn at its prefix,
    whatever was drafted (sample-and-walk).
    """
    require_tensor("samples", samples, tuple(tree.tokens.shape), INTEGERS, tree.tokens.device)
    return accept_greedy(tree, samples, out=out)
