"""How many tokens the drafter itself expects of each width, brought to the host without waiting for it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ddtree.sglang.trees import Candidates, rows_of
from ddtree.tree import Tree, build_tree

RING = 8
"""Steps whose numbers may be on their way; results lag the launch by two."""


@dataclass(frozen=True)
class Glance:
    """Numbers of one step on their way to the host: [requests, widths]."""

    numbers: torch.Tensor
    arrived: torch.cuda.Event

    def mean(self) -> list[float]:
        """Expected tokens at each width, a request. Waits only if the step itself is not done."""
        self.arrived.synchronize()
        means: list[float] = self.numbers.mean(0).tolist()
        return means


class Probe:
    """Builds the widest tree and sums its path probabilities; a narrower tree is a prefix of it."""

    def __init__(self, rows: int, depth: int, widths: Sequence[int], device: torch.device | str) -> None:
        self._tree = Tree.empty(rows, widths[-1], depth, device)
        self._last = torch.tensor([width - 1 for width in widths], device=device)
        self._expected = torch.ones(rows, len(widths), device=device)
        self._host = torch.ones(RING, rows, len(widths), pin_memory=torch.cuda.is_available())
        self._next = 0

    def look(self, drafts: Candidates) -> None:
        """Capturable."""
        nodes = self._tree.tokens.shape[1]
        tree = build_tree(
            drafts.log_probs,
            drafts.token_ids,
            drafts.roots,
            nodes - 1,
            max_nodes=nodes,
            out=rows_of(self._tree, drafts.rows),
        )
        self._expected[: drafts.rows].copy_(expected_tokens(tree.scores, self._last))

    def glance(self, requests: int) -> Glance:
        """Send the numbers of the step just launched to the host."""
        numbers = self._host[self._next, :requests]
        self._next = (self._next + 1) % RING
        numbers.copy_(self._expected[:requests], non_blocking=True)
        arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        arrived.record()
        return Glance(numbers, arrived)


def expected_tokens(scores: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
    """[R, widths]: tokens that a step emits if the drafter is right about itself, from log-probabilities of the nodes
    [R,N] in order of selection and the index of each width's last node. The root stands for the bonus token.
    """
    return scores.exp().cumsum(1)[:, last]
