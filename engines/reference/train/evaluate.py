"""Offline greedy acceptance: replay the target's own greedy text, count how much of it each draft would have held."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ddtree import build_tree
from engines.reference.train.drafter import Drafter, embed_blocks
from engines.reference.train.features import FeatureStore
from engines.reference.train.target import Target


@dataclass(frozen=True)
class Acceptance:
    """Tokens emitted per verify step, the bonus token counted, so 1 is plain decoding.

    `tree` by budget (drafted nodes, root excluded). `position_accuracy[k-1]`: share of all anchors whose most probable
    token at position k is the target's. `conversations`: how many were replayed.
    """

    linear: float
    tree: dict[int, float]
    position_accuracy: tuple[float, ...]
    conversations: int

    def record(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        trees = " ".join(f"{budget}:{length:.3f}" for budget, length in self.tree.items())
        marks = " ".join(f"{share:.2f}" for share in self.position_accuracy)
        return f"linear {self.linear:.3f}" + (f" tree {trees}" if trees else "") + f" top-1 by position {marks}"


@torch.no_grad()
def evaluate(
    drafter: Drafter, target: Target, store: FeatureStore, budgets: Sequence[int], conversations: int
) -> Acceptance:
    """Linear acceptance, and tree acceptance for each of `budgets`, over the store's first `conversations`."""
    hits = torch.zeros(drafter.config.block_size - 1)
    seen = torch.zeros_like(hits)
    chain, branching = _Tally(), {budget: _Tally() for budget in budgets}
    for index in range(min(conversations, len(store))):
        replay = _Replay.of(drafter, target, store, index)
        hits += replay.matches.sum(dim=0)
        seen += replay.known.sum(dim=0)
        chain.add(replay.matches.long().cumprod(dim=1).sum(dim=1))
        if budgets:
            for budget, accepted in replay.tree_accepted(budgets).items():
                branching[budget].add(accepted)
    return Acceptance(
        linear=chain.length,
        tree={budget: tally.length for budget, tally in branching.items()},
        position_accuracy=tuple((hits / seen.clamp(min=1)).tolist()),
        conversations=min(conversations, len(store)),
    )


@dataclass
class _Tally:
    """Verify steps and emitted tokens of replayed responses."""

    steps: int = 0
    emitted: int = 0

    def add(self, accepted: Tensor) -> None:
        """One response, given what each of its anchors [A] accepts; every step emits one token more than that."""
        lengths = accepted.tolist()
        anchor = 0
        while anchor < len(lengths):
            anchor += lengths[anchor] + 1
            self.steps += 1
        self.emitted += len(lengths)

    @property
    def length(self) -> float:
        return self.emitted / self.steps


@dataclass(frozen=True)
class _Replay:
    """Drafts at every token of one response, on the CPU. A anchors, D = block_size - 1 positions.

    logits [A,D,V] stay on the device; seeds [A]; truth, matches, known [A,D]: the target's token, whether the top draft
    equals it, whether the text goes that far.
    """

    logits: Tensor
    seeds: Tensor
    truth: Tensor
    matches: Tensor
    known: Tensor

    @classmethod
    def of(cls, drafter: Drafter, target: Target, store: FeatureStore, index: int) -> "_Replay":
        start, end = int(store.starts[index]), int(store.ends[index])
        batch = store.batch(torch.tensor([index], device=store.tokens.device), end)
        anchors = torch.arange(start, end - 1, device=store.tokens.device)
        places = anchors[:, None] + torch.arange(1, drafter.config.block_size, device=anchors.device)
        seeds = batch.tokens[:, start : end - 1]
        features = batch.features.to(drafter.fc.weight.dtype)
        blocks = embed_blocks(target.embedding, seeds, drafter.config).to(features.dtype)
        states = drafter(blocks, features, anchors[None])[0, :, 1:]
        logits = target.logits(states)
        truth = batch.tokens[0][places.clamp(max=end - 1)]
        known = places < end
        matches = (logits.argmax(dim=-1) == truth) & known
        return cls(logits, seeds[0].cpu(), truth.cpu(), matches.cpu(), known.cpu())

    def tree_accepted(self, budgets: Sequence[int]) -> dict[int, Tensor]:
        """Accepted drafts [A] by budget.

        Best-first trees are nested and numbered in the order of their search, so that the tree of budget b is the first
        b + 1 nodes of a greater one.
        """
        most = max(budgets)
        log_probs, ids = self.logits.log_softmax(dim=-1).topk(min(most, self.logits.shape[-1]), dim=-1)
        tree = build_tree(log_probs.cpu(), ids.int().cpu(), self.seeds.int(), most, max_nodes=most + 1)
        node = torch.zeros(len(self.seeds), dtype=torch.long)
        alive = torch.ones(len(self.seeds), dtype=torch.bool)
        accepted = {budget: torch.zeros(len(self.seeds), dtype=torch.long) for budget in budgets}
        for depth in range(self.truth.shape[1]):
            is_next = (tree.parents == node[:, None]) & (tree.tokens == self.truth[:, depth, None])
            alive &= is_next.any(dim=1) & self.known[:, depth]
            node = torch.where(alive, is_next.int().argmax(dim=1), node)
            for budget, count in accepted.items():
                count += alive & (node <= budget)
        return accepted
