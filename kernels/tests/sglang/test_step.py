"""One step of the plugin without SGLang: grow, accept, compact, inject, on CPU tensors."""

import pytest
import torch

from ddtree import PoolTable
from ddtree.sglang.commit import Sampling, commit, uniforms
from ddtree.sglang.trees import Candidates, Outcome, Verify

ROWS, DEPTH, K, WIDTH, VOCABULARY, HIDDEN = 3, 4, 5, 12, 50, 6


@pytest.fixture(params=range(5))
def random(request: pytest.FixtureRequest) -> torch.Generator:
    return torch.Generator().manual_seed(request.param)


def candidates(random: torch.Generator) -> Candidates:
    drafts = Candidates.empty(ROWS, DEPTH, K, "cpu")
    logits = torch.randn(ROWS, DEPTH, VOCABULARY, generator=random)
    top = torch.log_softmax(logits, -1).topk(K)
    drafts.log_probs.copy_(top.values)
    drafts.token_ids.copy_(top.indices)
    drafts.roots.copy_(torch.randint(VOCABULARY, (ROWS,), generator=random))
    drafts.prefix.copy_(torch.tensor([7, 3, 11]))
    return drafts


def grown(drafts: Candidates) -> Verify:
    verify = Verify.empty(ROWS, WIDTH, DEPTH, "cpu")
    verify.slots.copy_(torch.randperm(200)[: ROWS * WIDTH].view(ROWS, WIDTH))
    verify.grow(drafts, WIDTH - 1, chain=False)
    return verify


def test_the_target_takes_in_the_trees_tokens_at_their_depths(random: torch.Generator) -> None:
    drafts = candidates(random)
    verify = grown(drafts)
    assert torch.equal(verify.input_ids[:, 0], drafts.roots)
    assert torch.equal(verify.input_ids, verify.tree.tokens.long())
    assert torch.equal(verify.positions, drafts.prefix[:, None] + verify.tree.depths)


def test_a_step_keeps_the_accepted_path_and_nothing_else(random: torch.Generator) -> None:
    drafts = candidates(random)
    verify = grown(drafts)
    logits = torch.randn(ROWS * WIDTH, VOCABULARY, generator=random)
    hidden = torch.randn(ROWS * WIDTH, HIDDEN, generator=random)
    # Make the target agree with one child of the root, and with one child of that.
    paths = []
    for row in range(ROWS):
        path = [0]
        while (child := int(verify.tree.first_child[row, path[-1]])) != -1 and len(path) < 3:
            logits[row * WIDTH + path[-1], verify.tree.tokens[row, child]] = 99
            path.append(child)
        logits[row * WIDTH + path[-1], 49] = 999  # token 49 is no node's child: the walk ends there
        paths.append([node for node in path if 49 not in verify.tree.tokens[row, path[1:]].tolist()] or [0])
    pool = torch.arange(200.0)[:, None, None].expand(200, 1, 2).contiguous()
    before = pool.clone()
    injected: dict[str, torch.Tensor] = {}

    def inject(features: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor, lengths: torch.Tensor) -> None:
        injected.update(features=features, slots=slots, positions=positions, lengths=lengths)

    outcome = commit(verify, drafts.prefix, logits, hidden, PoolTable.of([pool]), inject, None)
    block = DEPTH + 1
    assert outcome.block == block
    lengths = outcome.lengths(ROWS).tolist()
    emitted = outcome.emitted(ROWS).view(ROWS, block)
    for row in range(ROWS):
        nodes = _walk(verify, logits.view(ROWS, WIDTH, -1).argmax(-1), row)
        assert lengths[row] == len(nodes)
        said = logits.view(ROWS, WIDTH, -1)[row, nodes].argmax(-1)
        assert emitted[row, : len(nodes)].tolist() == said.tolist()
        assert int(outcome.bonus(ROWS)[row]) == int(said[-1])
        slots = verify.slots[row]
        assert torch.equal(pool[slots[: len(nodes)]], before[slots[nodes]])
        assert torch.equal(injected["slots"][row], slots[:block])
        assert injected["positions"].view(ROWS, block)[row].tolist() == [
            int(drafts.prefix[row]) + i for i in range(block)
        ]
        rows = injected["features"].view(ROWS, block, -1)[row, : len(nodes)]
        assert torch.equal(rows, hidden.view(ROWS, WIDTH, -1)[row, nodes])
    assert outcome.prefix(ROWS).tolist() == (drafts.prefix + torch.tensor(lengths)).tolist()


def _walk(verify: Verify, chosen: torch.Tensor, row: int) -> list[int]:
    nodes = [0]
    while True:
        children = [
            i
            for i in range(1, WIDTH)
            if int(verify.tree.parents[row, i]) == nodes[-1]
            and int(verify.tree.tokens[row, i]) == int(chosen[row, nodes[-1]])
        ]
        if not children:
            return nodes
        nodes += children


def test_fewer_requests_than_rows_read_their_part_of_the_outcome() -> None:
    packed = torch.arange(3 * (5 + 3))
    outcome = Outcome(packed, 3)
    assert outcome.block == 5
    assert outcome.emitted(2).tolist() == list(range(10))
    assert outcome.lengths(2).tolist() == [15, 16]
    assert outcome.prefix(2).tolist() == [18, 19]
    assert outcome.bonus(2).tolist() == [21, 22]


def test_greedy_requests_in_a_sampled_batch_stay_greedy(random: torch.Generator) -> None:
    drafts = candidates(random)
    verify = grown(drafts)
    logits = torch.randn(ROWS * WIDTH, VOCABULARY, generator=random)
    hidden = torch.zeros(ROWS * WIDTH, HIDDEN)
    sampling = Sampling.empty(ROWS, "cpu")
    ones = torch.ones(ROWS)
    sampling.fill(ones, ones, torch.zeros(ROWS), torch.tensor([1, 1 << 30, 1]), torch.tensor([4, 5, 6]))
    assert sampling.temperature.tolist() == [0, 1, 0]
    assert sampling.top_k.tolist() == [1, 0, 1]
    greedy, sampled = (
        commit(verify, drafts.prefix, logits, hidden, PoolTable.of([torch.zeros(200, 1, 2)]), _nowhere, each)
        for each in (None, sampling)
    )
    for row in (0, 2):
        emitted = (each.emitted(ROWS).view(ROWS, -1)[row].tolist() for each in (greedy, sampled))
        assert next(emitted) == next(emitted)


def _nowhere(*_: torch.Tensor) -> None:
    """No drafter."""


def test_uniforms_are_uniform_and_belong_to_seed_and_position() -> None:
    seeds, positions = torch.arange(200), torch.arange(500).expand(200, 500)
    drawn = uniforms(seeds, positions)
    assert drawn.dtype == torch.float32
    assert 0 <= float(drawn.min()) <= float(drawn.max()) < 1
    counts = torch.histc(drawn, 20, 0, 1) / drawn.numel()
    assert float((counts - 0.05).abs().max()) < 0.003
    assert abs(float(torch.corrcoef(torch.stack([drawn[:, 1:].flatten(), drawn[:, :-1].flatten()]))[0, 1])) < 0.02
    assert torch.equal(uniforms(seeds[3:4], positions[3:4, 7:9]), drawn[3:4, 7:9])
    assert drawn.unique().numel() > 0.98 * drawn.numel() * (1 - drawn.numel() / 2**25)
