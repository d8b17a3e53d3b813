"""Top-K log-probabilities and the normaliser of the drafter's logits."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ddtree.checks import FLOATS, require, require_tensor, require_whole
from ddtree.dispatch import implementation


@dataclass(frozen=True)
class TopK:
    """The K most probable tokens per position, best first, ties by lower token id.

    log_probs [B,D,K] float32 = logits - lse; token_ids [B,D,K] int32; lse [B,D] float32 over the whole vocabulary (or
    shard); logits [B,D,K] float32, kept so that shards merge without rounding twice.
    """

    log_probs: torch.Tensor
    token_ids: torch.Tensor
    lse: torch.Tensor
    logits: torch.Tensor


def topk_logprobs(logits: torch.Tensor, k: int, *, vocab_offset: int = 0) -> TopK:
    """Top-k of logits [B,D,V] with log-probabilities over all V.

    `vocab_offset` is the id of column 0, for a vocabulary shard. A row that holds NaN or +inf, or nothing but -inf,
    has no distribution: on the CPU it raises ValueError, on CUDA (which must not wait) its log-probs become -inf and
    its lse is not finite, so that a tree has no node from it; `check_topk` finds it.
    """
    require_tensor("logits", logits, (None, None, None), FLOATS, logits.device)
    require_whole(k=k, vocab_offset=vocab_offset)
    require(0 < k <= logits.shape[2], f"k is {k}, allowed is 1 to the vocabulary of {logits.shape[2]}")
    require(min(logits.shape) > 0, f"logits has shape {list(logits.shape)}, every size must be positive")
    require(vocab_offset >= 0, f"vocab_offset is {vocab_offset}, allowed is 0 or more")
    top = TopK(*implementation("topk", logits.device).topk_logprobs(logits, k, vocab_offset))
    if logits.device.type == "cpu":
        check_topk(top)
    return top


def check_topk(top: TopK) -> None:
    """Raise ValueError if a row had NaN, +inf or no finite logit. Waits for the device: use outside of captured
    graphs.
    """
    bad = (~torch.isfinite(top.lse)).nonzero()
    require(bad.numel() == 0, f"logits of request, depth {bad[:4].tolist()} hold NaN, +inf or nothing but -inf")


def merge_topk(shards: Sequence[TopK]) -> TopK:
    """Merge vocabulary shards, given in vocabulary order, into the result over the whole vocabulary."""
    require(len(shards) > 0, "merge_topk needs at least one shard")
    shape = tuple(shards[0].logits.shape)
    for shard in shards:
        require_tensor("shard.logits", shard.logits, shape, (torch.float32,), shards[0].logits.device)
    logits = torch.cat([shard.logits for shard in shards], dim=-1)
    ids = torch.cat([shard.token_ids for shard in shards], dim=-1)
    lse = torch.logsumexp(torch.stack([shard.lse for shard in shards], dim=-1), dim=-1)
    # The stable sort keeps vocabulary order among equals: shards come in that order and each is sorted by (logit, id).
    values, order = torch.sort(logits, dim=-1, descending=True, stable=True)
    values, order = values[..., : shape[-1]], order[..., : shape[-1]]
    log_probs = torch.where(torch.isfinite(lse)[..., None], values - lse[..., None], float("-inf"))
    return TopK(log_probs, ids.gather(-1, order), lse, values.contiguous())
