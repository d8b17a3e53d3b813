"""The target's hidden states over every training token, held on the device: one pass, many epochs."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engines.reference.train.generate import Conversation
from engines.reference.train.target import Target

log = logging.getLogger(__name__)

PASS_TOKENS = 65_536
MEMORY_SHARE = 0.75


@dataclass(frozen=True)
class Batch:
    """B conversations, right-padded to T: tokens [B,T], features [B,T,F], final states [B,T,H] or None; the response
    of row b is tokens[b, starts[b]:ends[b]].
    """

    tokens: Tensor
    features: Tensor
    final: Tensor | None
    starts: Tensor
    ends: Tensor


@dataclass(frozen=True)
class FeatureStore:
    """Packed conversations: row `offsets[i] + p` belongs to position p of conversation i. All on one device."""

    tokens: Tensor
    features: Tensor
    final: Tensor | None
    offsets: Tensor
    starts: Tensor
    ends: Tensor

    @classmethod
    def build(
        cls, target: Target, items: Sequence[Conversation], layer_ids: Sequence[int], *, final: bool
    ) -> "FeatureStore":
        """One pass of the target; `final` also keeps the last normed states. Raises ValueError if memory lacks."""
        lengths = torch.tensor([len(item.tokens) for item in items])
        offsets = lengths.cumsum(0) - lengths
        total, width = int(lengths.sum()), target.config.hidden_size
        _check_memory(total * width * (len(layer_ids) + final) * target.embedding.element_size(), target.device)
        features = target.embedding.new_empty(total, width * len(layer_ids))
        last = target.embedding.new_empty(total, width) if final else None
        for group in _groups(lengths):
            padded = torch.zeros(len(group), int(lengths[group].max()), dtype=torch.long)
            for row, index in enumerate(group.tolist()):
                padded[row, : lengths[index]] = items[index].tokens
            states, end = target.hidden_states(padded.to(target.device), layer_ids)
            for row, index in enumerate(group.tolist()):
                part = slice(int(offsets[index]), int(offsets[index] + lengths[index]))
                features[part] = states[row, : lengths[index]]
                if last is not None:
                    last[part] = end[row, : lengths[index]]
        device = target.device
        return cls(
            tokens=torch.cat([item.tokens for item in items]).to(device, torch.long),
            features=features,
            final=last,
            offsets=offsets.to(device),
            starts=torch.tensor([item.start for item in items], device=device),
            ends=lengths.to(device),
        )

    @property
    def longest(self) -> int:
        return int(self.ends.max().item())

    def __len__(self) -> int:
        return len(self.ends)

    def batch(self, indices: Tensor, width: int) -> Batch:
        """Conversations `indices` [B] at a fixed `width`; what lies past a row's end means nothing."""
        places = (self.offsets[indices, None] + torch.arange(width, device=indices.device)).clamp(
            max=len(self.tokens) - 1
        )
        return Batch(
            tokens=self.tokens[places],
            features=self.features[places],
            final=None if self.final is None else self.final[places],
            starts=self.starts[indices],
            ends=self.ends[indices],
        )


def _groups(lengths: Tensor) -> list[Tensor]:
    """Indices in batches of similar length, about PASS_TOKENS tokens each."""
    order = lengths.argsort(descending=True)
    groups, begin = [], 0
    while begin < len(order):
        size = max(1, PASS_TOKENS // int(lengths[order[begin]]))
        groups.append(order[begin : begin + size])
        begin += size
    return groups


def _check_memory(needed: int, device: torch.device) -> None:
    log.info("features take %.1f GB", needed / 1e9)
    if device.type != "cuda":
        return
    torch.cuda.empty_cache()
    allowed = MEMORY_SHARE * torch.cuda.mem_get_info(device)[0]
    if needed > allowed:
        raise ValueError(
            f"features need {needed / 1e9:.1f} GB, allowed are {allowed / 1e9:.1f} GB of the device: lower --tokens"
        )
