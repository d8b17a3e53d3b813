"""Decoding is lossless: whatever is drafted, the text is the target's own."""

import random
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

import ddtree
from engines.reference.decoding import decode
from engines.reference.decoding.engine import Engine, Method
from tests.engines.reference.conftest import TinyPair
from tests.engines.reference.running import Answer, answer, drain, request

METHODS = [
    Method("autoregressive"),
    Method("dflash"),
    *(Method("ddtree", budget, chain) for budget in (1, 3, 4, 15, 70) for chain in (False, True)),
]


def prompts(count: int, seed: int) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(13) for _ in range(draw.randrange(1, 40))] for _ in range(count)]


def run(pair: TinyPair, method: Method, batch: int, work: Sequence[Sequence[int]], **params: object) -> list[Answer]:
    engine = Engine(pair.target, pair.drafter, method, batch, 128)
    for index, prompt in enumerate(work):
        engine.submit(request(str(index), prompt, ignore_eos=True, **params))
    answers = drain(engine)
    return [answers[str(index)] for index in range(len(work))]


@pytest.fixture(scope="module")
def greedy(tiny_pair: TinyPair) -> list[tuple[list[int], list[int]]]:
    """Prompts of many lengths and what a plain forward over everything continues them with, in float64."""
    return [(prompt, tiny_pair.naive.greedy(prompt, 24)) for prompt in prompts(7, seed=0)]


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("batch", [1, 3])
def test_greedy_text_equals_a_plain_forward(
    tiny_pair: TinyPair, greedy: list[tuple[list[int], list[int]]], method: Method, batch: int
) -> None:
    """With three slots, seven prompts and random lengths, sequences enter, end and move at all kinds of moments."""
    draw = random.Random(f"{method}{batch}")
    work = draw.sample(greedy, len(greedy))
    engine = Engine(tiny_pair.target, tiny_pair.drafter, method, batch, 128)
    lengths = [draw.randrange(1, 25) for _ in work]
    for index, (prompt, _) in enumerate(work):
        engine.submit(request(str(index), prompt, ignore_eos=True, max_tokens=lengths[index]))
    answers = drain(engine)
    for index, (_, expected) in enumerate(work):
        assert answers[str(index)].tokens == expected[: lengths[index]]


def test_trees_accept_more_than_the_chain_and_more_with_budget(tiny_pair: TinyPair) -> None:
    """Also the power of the test above: paths of several drafts were really accepted."""
    methods = [Method("dflash"), Method("ddtree", 4), Method("ddtree", 15), Method("ddtree", 70)]
    steps = []
    for method in methods:
        answers = run(tiny_pair, method, 3, prompts(7, seed=0), max_tokens=24)
        steps.append(sum(reply.stats.verify_steps for reply in answers))
        if method.budget == 70:
            assert any(len(reply.stats.accepted_by_depth) >= 3 for reply in answers)
    assert steps[3] < steps[2] < steps[0]
    assert steps[1] < steps[0]


def test_a_tree_of_the_chain_alone_is_dflash_step_by_step(tiny_pair: TinyPair) -> None:
    """budget = block - 1 with the chain forced in leaves no room for a sibling."""
    depth = tiny_pair.drafter.depth
    linear = run(tiny_pair, Method("dflash"), 3, prompts(7, seed=1), max_tokens=30)
    tree = run(tiny_pair, Method("ddtree", depth, chain=True), 3, prompts(7, seed=1), max_tokens=30)
    assert [(reply.steps, reply.stats) for reply in tree] == [(reply.steps, reply.stats) for reply in linear]


def test_dflash_is_the_tree_of_one_candidate_a_depth(tiny_pair: TinyPair) -> None:
    """A tree that may take one candidate a depth has the nodes of the linear chain: same tokens, parents, order."""
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 4, 13, generator=draw)
    seeds = torch.tensor([5, 6, 7])
    chain = decode.grow(Method("dflash"), logits, seeds)
    assert chain.tokens.tolist() == torch.cat([seeds[:, None], logits.argmax(-1)], dim=1).tolist()
    assert chain.parents.tolist() == [[-1, 0, 1, 2, 3]] * 3
    top = ddtree.topk_logprobs(logits, 1)
    free = ddtree.build_tree(top.log_probs, top.token_ids, seeds, 4, max_nodes=5)
    assert torch.equal(chain.tokens, free.tokens)
    assert torch.equal(chain.ancestors, free.ancestors)


def test_more_candidates_than_the_budget_never_change_a_tree() -> None:
    draw = torch.Generator().manual_seed(0)
    for scale in (0.01, 1.0, 5.0):
        logits = torch.randn(8, 4, 50, generator=draw) * scale
        seeds = torch.zeros(8, dtype=torch.long)
        for budget in (1, 2, 7, 20):
            tree = decode.grow(Method("ddtree", budget), logits, seeds)
            top = ddtree.topk_logprobs(logits, 50)
            full = ddtree.build_tree(top.log_probs, top.token_ids, seeds, budget, max_nodes=budget + 1)
            assert torch.equal(tree.tokens, full.tokens)
            assert torch.equal(tree.parents, full.parents)


def all_see_all(tree: ddtree.Tree) -> Tensor:
    return torch.ones_like(ddtree.ancestor_mask(tree))


def blind(tree: ddtree.Tree) -> Tensor:
    return torch.eye(tree.tokens.shape[1], dtype=torch.bool).expand_as(ddtree.ancestor_mask(tree))


def flat(tree: ddtree.Tree, prefix_lens: Tensor) -> Tensor:
    return prefix_lens[:, None] + torch.arange(tree.tokens.shape[1])


@pytest.mark.parametrize(
    ("name", "wrong"), [("ancestor_mask", all_see_all), ("ancestor_mask", blind), ("positions", flat)]
)
def test_a_wrong_mask_or_position_changes_the_text(
    tiny_pair: TinyPair,
    greedy: list[tuple[list[int], list[int]]],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    wrong: object,
) -> None:
    """The equality tests would see it."""
    monkeypatch.setattr(decode, name, wrong)
    answers = run(tiny_pair, Method("ddtree", 15), 2, [prompt for prompt, _ in greedy], max_tokens=24)
    assert any(reply.tokens != expected for reply, (_, expected) in zip(answers, greedy, strict=True))


def test_rows_that_are_not_compacted_change_the_text(
    tiny_pair: TinyPair, greedy: list[tuple[list[int], list[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode, "compact_kv", lambda *arguments: None)
    answers = run(tiny_pair, Method("ddtree", 15), 2, [prompt for prompt, _ in greedy], max_tokens=24)
    assert any(reply.tokens != expected for reply, (_, expected) in zip(answers, greedy, strict=True))


@pytest.mark.parametrize(
    "params",
    [{"temperature": 1.0}, {"temperature": 0.7, "top_p": 0.9}, {"temperature": 1.5, "top_k": 5, "min_p": 0.05}],
)
def test_sampled_text_depends_on_seed_and_position_only(tiny_pair: TinyPair, params: dict[str, float]) -> None:
    """Not on the method, nor on who else is in the batch."""
    work = prompts(6, seed=3)
    expected = [reply.tokens for reply in run(tiny_pair, METHODS[0], 1, work, max_tokens=20, seed=11, **params)]
    for method in METHODS[1:]:
        replies = run(tiny_pair, method, 3, work, max_tokens=20, seed=11, **params)
        assert [reply.tokens for reply in replies] == expected
    other = run(tiny_pair, METHODS[0], 1, work, max_tokens=20, seed=12, **params)
    assert [reply.tokens for reply in other] != expected


def test_greedy_and_sampled_requests_share_a_batch(tiny_pair: TinyPair) -> None:
    engine = Engine(tiny_pair.target, tiny_pair.drafter, Method("ddtree", 7), 2, 64)
    alone = [answer(engine, [4, 5], ignore_eos=True, temperature=heat, seed=5).tokens for heat in (0.0, 1.0)]
    for index, heat in enumerate((0.0, 1.0)):
        engine.submit(request(str(index), [4, 5], ignore_eos=True, temperature=heat, seed=5))
    answers = drain(engine)
    assert [answers["0"].tokens, answers["1"].tokens] == alone
