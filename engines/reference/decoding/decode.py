"""The forwards of prefill and decode steps, over sequences in the first slots of the caches."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ddtree import (
    Acceptance,
    Tree,
    accept_sampled,
    ancestor_mask,
    build_tree,
    compact_kv,
    gather_rows,
    positions,
    topk_logprobs,
)
from engines.reference.decoding.clock import StageClock
from engines.reference.decoding.recording import recorded
from engines.reference.decoding.request import DraftTree, Method, TopLogprobs
from engines.reference.decoding.sampling import draw, greedy, top_logprobs
from engines.reference.decoding.sequence import Sequence
from engines.reference.model.cache import Rows
from engines.reference.model.drafter import Drafter
from engines.reference.model.mask import causal
from engines.reference.model.target import Target, plan_pass


@dataclass(frozen=True)
class StepTokens:
    """One sequence's share of a step: `tokens` = accepted drafts, then the target's own; `drafted` nodes verified."""

    tokens: list[int]
    drafted: int
    logprobs: tuple[TopLogprobs, ...]


class Decoder:
    """Caches of a target and, for speculative methods, its drafter. Sequence i of a batch lives in slot i.

    The caches are longer than the context by one verify width: a tree at the context's end may not fit into it, and
    what lies beyond is cut when tokens are emitted. `recording`, where it is a list, takes the draft tree of each
    verify step.
    """

    def __init__(self, target: Target, drafter: Drafter | None, method: Method, slots: int, context: int) -> None:
        self.recording: list[DraftTree] | None = None
        self._target = target
        self._method = method
        self._drafter = None if method.name == "autoregressive" else drafter
        self._feature_layers = self._drafter.config.target_layer_ids if self._drafter else ()
        length = context + _overhang(method, self._drafter)
        self._cache = target.new_cache(slots, length)
        self._rotary = target.rotary_table(length)
        if self._drafter:
            self._draft_cache = self._drafter.new_cache(slots, length)
            self._draft_rotary = self._drafter.rotary_table(length)

    def move(self, source: int, slot: int, length: int) -> None:
        """Copy a sequence of `length` cached tokens into another slot."""
        self._cache.move(source, slot, length)
        if self._drafter:
            self._draft_cache.move(source, slot, length)

    def prefill(self, sequence: Sequence, slot: int, width: int) -> StepTokens | None:
        """Cache the next `width` prompt tokens; the first new token after the last of them."""
        start = sequence.prefix_len
        prompt = sequence.request.prompt_ids[start : start + width]
        tokens, prefix = self._tensor([prompt]), self._tensor([start])
        where = prefix.unsqueeze(1) + torch.arange(len(prompt), device=prefix.device)
        among = causal(1, len(prompt), prefix.device)
        end = start + len(prompt)
        step = plan_pass(self._target.config, self._cache, self._rotary, among, prefix, where, slot, end)
        hidden, features = self._target.forward(tokens, step, self._feature_layers)
        if self._drafter and features is not None:
            self._drafter.inject(features.unsqueeze(0), self._draft_cache, self._draft_rotary, step.rows)
        sequence.prefix_len = end
        if not sequence.prefilled:
            return None
        return self._sampled([sequence], self._target.logits(hidden[-1:]), where[:, -1:])[0]

    def step(self, batch: list[Sequence], clock: StageClock) -> list[StepTokens]:
        """One decode step of all sequences of a batch."""
        if self._drafter is None:
            return self._decode_one(batch, clock)
        return self._speculate(batch, self._drafter, clock)

    def _decode_one(self, batch: list[Sequence], clock: StageClock) -> list[StepTokens]:
        seeds, prefix, longest = self._state(batch)
        where = prefix.unsqueeze(1)
        among = causal(len(batch), 1, prefix.device)
        step = plan_pass(self._target.config, self._cache, self._rotary, among, prefix, where, 0, longest + 1)
        clock.lap("host")
        hidden, _ = self._target.forward(seeds.unsqueeze(1), step)
        results = self._sampled(batch, self._target.logits(hidden), where)
        clock.lap("verify")
        for sequence in batch:
            sequence.prefix_len += 1
        return results

    def _speculate(self, batch: list[Sequence], drafter: Drafter, clock: StageClock) -> list[StepTokens]:
        seeds, prefix, longest = self._state(batch)
        clock.lap("host")
        draft_logits = drafter.draft(seeds, prefix, longest, self._draft_cache, self._draft_rotary)
        clock.lap("draft")
        tree = grow(self._method, draft_logits, seeds)
        width = tree.tokens.shape[1]
        where = positions(tree, prefix)
        step = plan_pass(
            self._target.config, self._cache, self._rotary, ancestor_mask(tree), prefix, where, 0, longest + width
        )
        clock.lap("build")
        hidden, features = self._target.forward(tree.tokens, step, self._feature_layers)
        logits = self._target.logits(hidden).view(len(batch), width, -1)
        samples = draw(logits, [sequence.request.params for sequence in batch], where)
        clock.lap("verify")
        acceptance = accept_sampled(tree, samples)
        assert features is not None
        lengths = acceptance.lengths.tolist()
        self._commit(acceptance, features.view(len(batch), width, -1), prefix, max(lengths))
        clock.lap("commit")
        for sequence, length in zip(batch, lengths, strict=True):
            sequence.prefix_len += length
        if self.recording is not None:
            self.recording.append(recorded(tree, draft_logits, acceptance))
        return _accepted(batch, tree, acceptance, logits)

    def _commit(self, acceptance: Acceptance, features: Tensor, prefix: Tensor, longest: int) -> None:
        """Move the accepted rows to the front of the target's cache and inject their features into the drafter's."""
        assert self._drafter is not None
        compact_kv(*self._cache.by_sequence(len(prefix)), acceptance, prefix)
        # A shorter path leaves rows behind its end that the sequence's next block and injection overwrite unread.
        rows = Rows.after(prefix, longest, 0, 0)
        accepted = gather_rows(features, acceptance)[:, :longest]
        self._drafter.inject(accepted, self._draft_cache, self._draft_rotary, rows)

    def _sampled(self, batch: list[Sequence], logits: Tensor, where: Tensor) -> list[StepTokens]:
        """One token for each sequence from logits [B, V] at positions where [B, 1]."""
        params = [sequence.request.params for sequence in batch]
        tokens = draw(logits.unsqueeze(1), params, where)[:, 0].tolist()
        return [
            StepTokens([token], 0, top_logprobs(logits[index : index + 1], param.logprobs) if param.logprobs else ())
            for index, (token, param) in enumerate(zip(tokens, params, strict=True))
        ]

    def _state(self, batch: list[Sequence]) -> tuple[Tensor, Tensor, int]:
        """Seeds [B], prefix lengths [B] and the longest of them."""
        lengths = [sequence.prefix_len for sequence in batch]
        return self._tensor([sequence.seed for sequence in batch]), self._tensor(lengths), max(lengths)

    def _tensor(self, values: object) -> Tensor:
        return torch.tensor(values, device=self._target.device)


def grow(method: Method, draft_logits: Tensor, seeds: Tensor) -> Tree:
    """The tree that a speculative method verifies, from draft logits [B, depth, V].

    dflash is the tree of one candidate per depth, the drafter's greedy chain, whose shape no probability changes.
    A node of rank r has r better siblings, all in the tree before it, so `budget` candidates a depth always suffice.
    """
    if method.budget is None:
        chain = greedy(draft_logits).unsqueeze(2)
        depth = chain.shape[1]
        return build_tree(torch.zeros_like(chain, dtype=torch.float32), chain, seeds, depth, max_nodes=depth + 1)
    top = topk_logprobs(draft_logits, min(method.budget, draft_logits.shape[2]))
    return build_tree(
        top.log_probs, top.token_ids, seeds, method.budget, max_nodes=method.budget + 1, chain=method.chain
    )


def _overhang(method: Method, drafter: Drafter | None) -> int:
    """Rows that a step may need beyond the context: its verify width or its draft block."""
    if drafter is None:
        return 1
    return max((method.budget or 0) + 1, drafter.config.block_size)


def _accepted(batch: list[Sequence], tree: Tree, acceptance: Acceptance, logits: Tensor) -> list[StepTokens]:
    rows = zip(batch, tree.sizes.tolist(), acceptance.lengths.tolist(), acceptance.emitted.tolist(), strict=True)
    results = []
    for index, (sequence, size, length, emitted) in enumerate(rows):
        count = sequence.request.params.logprobs
        path = acceptance.node_index[index, :length].long()
        logprobs = top_logprobs(logits[index, path], count) if count else ()
        results.append(StepTokens(emitted[:length], size - 1, logprobs))
    return results
