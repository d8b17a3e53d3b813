"""The stages on the CPU, where nothing is captured: rows, budgets and padding."""

import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ddtree import PoolTable
from ddtree.sglang.commit import Sampling
from ddtree.sglang.settings import Settings
from ddtree.sglang.stage import Stages, workspace
from ddtree.sglang.trees import Candidates, Outcome, Verify

ROWS, DEPTH, K, WIDTH, VOCABULARY, HIDDEN = 4, 5, 4, 8, 30, 3


class Graph:
    def __init__(self) -> None:
        self.replays = 0

    def replay(self) -> None:
        self.replays += 1


def drafted(seed: int = 0) -> Candidates:
    drafts = Candidates.empty(ROWS, DEPTH, K, "cpu")
    top = torch.log_softmax(torch.randn(ROWS, DEPTH, VOCABULARY, generator=torch.Generator().manual_seed(seed)), -1)
    drafts.log_probs.copy_(top.topk(K).values)
    drafts.token_ids.copy_(top.topk(K).indices)
    return drafts


def stages(drafts: Candidates, budget: int, pool: torch.Tensor) -> tuple[Stages, Verify, list[dict[str, Any]]]:
    verify, injected = Verify.empty(ROWS, WIDTH, DEPTH, "cpu"), []

    def inject(features: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor, lengths: torch.Tensor) -> None:
        injected.append({"features": features, "slots": slots, "lengths": lengths})

    sampling, settings = Sampling.empty(ROWS, "cpu"), Settings(budget)
    return Stages(verify, drafts, sampling, PoolTable.of([pool]), inject, settings, None), verify, injected


def test_a_batch_takes_the_next_larger_graph_or_none() -> None:
    built, _, _ = stages(drafted(), 7, torch.zeros(50, 1, 2))
    assert built.rows_for(3) == 3
    graphs = {rows: Graph() for rows in (1, 2, 4)}
    built._grows = graphs  # type: ignore[assignment]
    assert [built.rows_for(requests) for requests in (1, 2, 3, 4, 5)] == [1, 2, 4, 4, 5]
    assert built.captured == [1, 2, 4]
    built.grow(4)
    assert [graph.replays for graph in graphs.values()] == [0, 0, 1]


def test_an_outcome_outlives_the_replay_after_it() -> None:
    built, _, _ = stages(drafted(), 7, torch.zeros(50, 1, 2))
    packed = torch.arange(ROWS * (DEPTH + 1 + 3))
    built._commits = {(ROWS, True): (Graph(), Outcome(packed, ROWS))}  # type: ignore[dict-item]
    outcome = built.commit(ROWS, greedy=True)
    packed.fill_(-7)  # what the next replay does
    assert outcome.lengths(ROWS).tolist() == list(range(24, 28))


@pytest.mark.parametrize("requests", [1, 3])
@pytest.mark.parametrize("budget", [3, 7])
def test_padding_nodes_and_padding_rows_change_nothing(budget: int, requests: int) -> None:
    pool = torch.arange(50.0)[:, None, None].expand(50, 1, 2).contiguous()
    drafts = drafted()
    built, verify, injected = stages(drafts, budget, pool)
    verify.slots[:requests] = torch.arange(1, 1 + requests * WIDTH).view(requests, WIDTH)
    before = pool.clone()
    built.grow(ROWS)
    assert (verify.tree.sizes == budget + 1).all()
    # Every node, padding too, is followed by token 0, which padding nodes hold as well: none may be walked to.
    logits = torch.zeros(ROWS * WIDTH, VOCABULARY)
    logits[:, 0] = 1.0
    verify.tree.tokens[:, 1 : budget + 1].clamp_(min=1)
    hidden = torch.randn(ROWS * WIDTH, HIDDEN)
    outcome = built.commit_eager(ROWS, SimpleNamespace(next_token_logits=logits, hidden_states=hidden), greedy=True)
    assert outcome.lengths(ROWS).tolist() == [1] * ROWS
    assert outcome.bonus(requests).tolist() == [0] * requests
    assert torch.equal(pool, before)
    assert injected[0]["slots"].shape == (ROWS, DEPTH + 1)
    assert injected[0]["lengths"].tolist() == [1] * ROWS
    assert torch.equal(injected[0]["features"].view(ROWS, DEPTH + 1, -1)[:, 0], hidden.view(ROWS, WIDTH, -1)[:, 0])


class _Helper:
    """Works in a buffer that it replaces by a larger one, as SGLang's fused injection does."""

    def __init__(self) -> None:
        self.layers, self.name = 4, "fused"
        self.space: torch.Tensor | None = None

    def grow(self, tokens: int) -> None:
        self.space = torch.empty(tokens)


def test_a_workspace_is_kept_when_its_helper_takes_a_larger_one() -> None:
    helper = _Helper()
    assert workspace(None) == workspace(helper) == ()
    helper.grow(256)
    kept, freed = workspace(helper), weakref.ref(helper.space)
    helper.grow(512)
    assert freed() is kept[0]
    del kept
    assert freed() is None, "nobody else keeps it"
