"""What an engine tells token by token: the target's ranking after a prefix, and drafts with what became of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ranking:
    """The target's most probable next tokens after a prefix, best first, with their log-probabilities."""

    token_ids: tuple[int, ...]
    log_probs: tuple[float, ...]

    def regret(self, token_id: int) -> float:
        """How far the token's logit lies below the best one's (>= 0); infinite for a token that is not ranked."""
        if token_id not in self.token_ids:
            return float("inf")
        return self.log_probs[0] - self.log_probs[self.token_ids.index(token_id)]


@dataclass(frozen=True)
class DraftNode:
    """A node of a draft tree. `parent` is -1 at the root, the token emitted last; `log_prob` is the drafter's, of the
    whole path from the root."""

    token_id: int
    text: str
    parent: int
    depth: int
    log_prob: float


@dataclass(frozen=True)
class DraftTree:
    """One verify step. Nodes come root first and then best first, so that a smaller budget would have kept a beginning
    of them (an arm with `chain` aside). `accepted`: the nodes of the accepted path, the root included; the bonus token
    is the target's own after it."""

    nodes: tuple[DraftNode, ...]
    accepted: tuple[int, ...]
    bonus_id: int
    bonus_text: str
