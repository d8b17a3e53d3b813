"""The drafter's tail: candidates of every drafted position, from the target's LM head."""

from typing import Any

import torch

from ddtree.sglang.trees import Candidates
from ddtree.topk import TopK, merge_topk, topk_logprobs


class CandidateHead:
    """Called with the drafter's hidden states [R*B,H], inside its CUDA graph or after an eager forward.

    weight [V,H] is this rank's part of the LM head, `offset` its first token id. With a tensor-parallel group the
    parts are merged, so that every rank builds the same tree.
    """

    def __init__(self, weight: torch.Tensor, offset: int, block: int, drafts: Candidates, group: Any) -> None:
        self.weight = weight
        self.offset = offset
        self.block = block
        self.drafts = drafts
        self.group = group

    def __call__(self, hidden: torch.Tensor, input_ids: torch.Tensor | None = None) -> None:
        rows = hidden.shape[0] // self.block
        # Flat before the product: of a slice of blocks PyTorch makes a batched one, which reads the weight for each.
        drafted = hidden.view(rows, self.block, -1)[:, 1:].flatten(0, 1).to(self.weight.dtype)
        logits = torch.mm(drafted, self.weight.T).view(rows, self.block - 1, -1)
        top = topk_logprobs(logits, self.drafts.log_probs.shape[2], vocab_offset=self.offset)
        if self.group is not None:
            top = merge_topk(self._shards(top))
        self.drafts.log_probs[:rows].copy_(top.log_probs)
        self.drafts.token_ids[:rows].copy_(top.token_ids)

    def _shards(self, top: TopK) -> list[TopK]:
        lse, logits, ids = (self._gather(part) for part in (top.lse, top.logits, top.token_ids))
        return [TopK(logits[i], ids[i], lse[i], logits[i]) for i in range(self.group.world_size)]

    def _gather(self, part: torch.Tensor) -> torch.Tensor:
        whole = part.new_empty((self.group.world_size * part.shape[0], *part.shape[1:]))
        self.group.all_gather_into_tensor(whole, part.contiguous())
        return whole.view(self.group.world_size, *part.shape)
