"""A plugin that spoils DDTREE's mask, to see that its self-check keeps such a server from serving. Never installed.

DDTREE_FAULT: `skip` leaves what the mask's buffer held before; `corrupt` lets every node see every other.
"""

import os
from typing import Any

import torch

import ddtree.mask
from ddtree.sglang import trees


def activate() -> None:
    fault = os.environ["DDTREE_FAULT"]
    if os.environ.get("DDTREE_ATTENTION") == "stock":
        ddtree.mask.sglang_mask = _stock(fault)
    else:
        trees.Verify.grow = _grown(fault, trees.Verify.grow)  # type: ignore[method-assign]


def _stock(fault: str) -> Any:
    def mask(tree: Any, prefix: torch.Tensor, *, out: torch.Tensor, fill_prefix: bool = True) -> torch.Tensor:
        return out.fill_(1) if fault == "corrupt" else out

    return mask


def _grown(fault: str, grow: Any) -> Any:
    def grown(self: trees.Verify, *arguments: Any, **named: Any) -> None:
        before = self.tree.ancestors.clone()
        grow(self, *arguments, **named)
        if fault == "corrupt":
            self.tree.ancestors.fill_(-1)
        else:
            self.tree.ancestors.copy_(before)

    return grown
