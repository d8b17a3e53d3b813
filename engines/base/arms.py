"""What a sweep compares: ways to decode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Method(StrEnum):
    """How an engine decodes."""

    AUTOREGRESSIVE = "autoregressive"
    DFLASH = "dflash"
    DDTREE = "ddtree"
    NGRAM = "ngram"
    EAGLE3 = "eagle3"


@dataclass(frozen=True)
class Arm:
    """Engine x method x parameters: what a sweep compares.

    `budget` counts tree nodes without the root (DDTree, arXiv 2604.12989), so the target verifies budget + 1 tokens;
    `chain`: the drafter's greedy chain is in the tree whatever else is.
    """

    name: str
    engine: str
    method: Method
    budget: int | None = None
    chain: bool = False
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict)

    @property
    def speculative(self) -> bool:
        return self.method is not Method.AUTOREGRESSIVE

    @property
    def needs_drafter(self) -> bool:
        """Whether a model drafts; n-gram drafts come from the text itself."""
        return self.speculative and self.method is not Method.NGRAM
