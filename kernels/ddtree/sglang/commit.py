"""What follows a verify forward: accept, compact, and give the drafter its features."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ddtree.accept import accept_greedy
from ddtree.compact import PoolTable, compact_slots, gather_rows
from ddtree.sample import sample_target
from ddtree.sglang.trees import Outcome, Verify

_GOLDEN = -7046029254386353131  # 2**64 / golden ratio, as a signed integer (splitmix64, Steele et al. 2014)
_MIXES = ((30, -4658895280553007687), (27, -7723592293110705685))

NO_TOP_K = 1 << 30

Inject = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], None]
"""(features [R*B,H], slots [R,B], positions [R,B], lengths [R]): the first `lengths` rows go to the drafter's KV."""


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters of up to R requests: temperature, top_p, min_p float32; top_k, seeds int64, all [R]."""

    temperature: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    top_k: torch.Tensor
    seeds: torch.Tensor

    @classmethod
    def empty(cls, rows: int, device: torch.device | str) -> "Sampling":
        """Greedy for every row."""
        floats = torch.zeros(3, rows, device=device)
        floats[1].fill_(1.0)
        return cls(*floats, *torch.zeros(2, rows, dtype=torch.int64, device=device))

    def first(self, rows: int) -> "Sampling":
        return Sampling(*(value[:rows] for value in vars(self).values()))

    def fill(
        self,
        temperature: torch.Tensor,
        top_p: torch.Tensor,
        min_p: torch.Tensor,
        top_k: torch.Tensor,
        seeds: torch.Tensor,
    ) -> None:
        """From SGLang's values for the first requests, where top-k 1 stands for greedy and 2**30 for no cut."""
        requests = top_k.shape[0]
        self.temperature[:requests].copy_(torch.where(top_k == 1, 0.0, temperature.view(-1)))
        self.top_p[:requests].copy_(top_p)
        self.min_p[:requests].copy_(min_p)
        self.top_k[:requests].copy_(torch.where(top_k >= NO_TOP_K, 0, top_k))
        self.seeds[:requests].copy_(seeds)


def uniforms(seeds: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """float32 [R,W] in [0, 1) from seeds [R] and positions [R,W] int64: the same token position of the same request
    always draws the same number, whatever the tree around it.
    """
    bits = _mixed(_mixed(seeds)[:, None] + (positions + 1) * _GOLDEN)
    return _logical_shift(bits, 40).float() * 2.0**-24


def _mixed(bits: torch.Tensor) -> torch.Tensor:
    for shift, factor in _MIXES:
        bits = (bits ^ _logical_shift(bits, shift)) * factor
    return bits ^ _logical_shift(bits, 31)


def _logical_shift(bits: torch.Tensor, places: int) -> torch.Tensor:
    return (bits >> places) & ((1 << (64 - places)) - 1)


def commit(
    verify: Verify,
    prefix: torch.Tensor,
    logits: torch.Tensor,
    hidden: torch.Tensor,
    pools: PoolTable,
    inject: Inject,
    sampling: Sampling | None,
) -> Outcome:
    """Walk the trees of R requests with the target's logits [R*W,V] (`sampling` None: greedy), move the accepted KV
    to the front of its slots and inject the target's features hidden [R*W,H] along the path. Capturable.
    """
    rows, width = verify.slots.shape
    logits = logits.view(rows, width, -1)
    if sampling is None:
        chosen = logits.argmax(-1)
    else:
        draws = uniforms(sampling.seeds, verify.positions)
        cuts = (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p)
        chosen = sample_target(logits, *cuts, draws, joint=True)
    acceptance = accept_greedy(verify.tree, chosen)
    compact_slots(pools, verify.slots, acceptance)
    features = gather_rows(hidden.view(rows, width, -1), acceptance)
    block = features.shape[1]
    places = prefix[:, None] + torch.arange(block, device=prefix.device)
    inject(features.view(rows * block, -1), verify.slots[:, :block].contiguous(), places, acceptance.lengths)
    return Outcome.pack(acceptance, prefix)
