from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ddtree.sglang.heads import CandidateHead
from ddtree.sglang.trees import Candidates

ROWS, BLOCK, K, HIDDEN, VOCABULARY, RANKS = 3, 5, 6, 8, 60, 2


class Group:
    """A tensor-parallel group of which one rank runs: what the others hold is known beforehand."""

    world_size = RANKS

    def __init__(self, others: list[torch.Tensor]) -> None:
        self._others = others

    def all_gather_into_tensor(self, whole: torch.Tensor, part: torch.Tensor) -> None:
        whole.copy_(torch.cat([part, self._others.pop(0)]))


def shard(weight: torch.Tensor, offset: int, drafts: Candidates, group: object) -> CandidateHead:
    return CandidateHead(weight, offset, BLOCK, drafts, group)


@pytest.mark.parametrize("seed", range(3))
def test_a_sharded_head_proposes_what_the_whole_one_does(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(VOCABULARY, HIDDEN, generator=generator)
    hidden = torch.randn(ROWS * BLOCK, HIDDEN, generator=generator)
    whole, parts = (Candidates.empty(ROWS + 1, BLOCK - 1, K, "cpu") for _ in range(2))
    shard(weight, 0, whole, None)(hidden)

    first, second = weight[:40], weight[40:]
    sent: list[torch.Tensor] = []

    def sends(part: torch.Tensor) -> torch.Tensor:
        sent.append(part)
        return part.expand(RANKS, *part.shape)

    other = shard(second, 40, Candidates.empty(ROWS, BLOCK - 1, K, "cpu"), Group([]))
    monkeypatch.setattr(other, "_gather", sends)
    other(hidden)
    shard(first, 0, parts, Group(sent))(hidden)

    assert torch.equal(parts.token_ids, whole.token_ids)
    torch.testing.assert_close(parts.log_probs[:ROWS], whole.log_probs[:ROWS])
    assert parts.log_probs[ROWS:].isinf().all()  # a row that no request filled


def test_the_first_position_of_a_block_drafts_nothing() -> None:
    drafts = Candidates.empty(1, BLOCK - 1, 1, "cpu")
    hidden = torch.eye(HIDDEN)[:BLOCK]
    shard(torch.eye(HIDDEN), 100, drafts, None)(hidden)
    assert drafts.token_ids[0, :, 0].tolist() == [101, 102, 103, 104]


class Products(TorchDispatchMode):
    """Names of the matrix products that are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(isinstance(argument, torch.Tensor) and argument.shape[-2:] == (HIDDEN, VOCABULARY) for argument in args):
            self.names.append(func.__name__.partition(".")[0])
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("rows", [1, ROWS])
def test_the_head_is_read_once_however_many_blocks_there_are(rows: int) -> None:
    drafts = Candidates.empty(rows, BLOCK - 1, K, "cpu")
    head = shard(torch.randn(VOCABULARY, HIDDEN), 0, drafts, None)
    with Products() as products:
        head(torch.randn(rows * BLOCK, HIDDEN))
    assert products.names == ["mm"]
