"""Recorded draft trees against what the same engine emits when nobody records."""

import math

import pytest

from engines.reference.decoding.engine import Engine, Method
from tests.engines.reference.conftest import TinyPair
from tests.engines.reference.running import answer, request

PROMPT = [3, 1, 4, 1, 5]
STEPS = 6


@pytest.fixture(params=[Method("dflash"), Method("ddtree", 15), Method("ddtree", 5, chain=True)], ids=str)
def engine(request: pytest.FixtureRequest, tiny_pair: TinyPair) -> Engine:
    return Engine(tiny_pair.target, tiny_pair.drafter, request.param, 2, 64)


def test_accepted_paths_and_bonus_tokens_are_the_text(engine: Engine) -> None:
    reply = answer(engine, PROMPT, max_tokens=59, ignore_eos=True)
    trees = engine.record(request("r", PROMPT, max_tokens=59, ignore_eos=True), STEPS)
    assert len(trees) == STEPS
    for tree, step in zip(trees, reply.steps[1:], strict=False):
        assert [tree.tokens[node] for node in tree.accepted[1:]] + [tree.bonus] == step
        assert [tree.parents[node] for node in tree.accepted[1:]] == tree.accepted[:-1]
    roots = [reply.steps[0][-1], *(tree.bonus for tree in trees)]
    assert [tree.tokens[0] for tree in trees] == roots[:-1]


def test_scores_are_sums_of_log_probabilities_best_first(engine: Engine, tiny_pair: TinyPair) -> None:
    size = (engine.method.budget or tiny_pair.drafter.config.block_size - 1) + 1
    for tree in engine.record(request("r", PROMPT, max_tokens=59, ignore_eos=True), STEPS):
        assert len(tree.tokens) == len(tree.parents) == len(tree.depths) == len(tree.scores) == size
        assert (tree.parents[0], tree.depths[0], tree.scores[0]) == (-1, 0, 0.0)
        drafted = range(1, size)
        assert all(tree.depths[node] == tree.depths[tree.parents[node]] + 1 for node in drafted)
        assert tree.scores[1:] == pytest.approx(sorted(tree.scores[1:], reverse=True), abs=1e-4)
        first = [math.exp(tree.scores[node]) for node in drafted if tree.depths[node] == 1]
        assert 0 < sum(first) <= 1 + 1e-5


def test_recording_leaves_nothing_behind(engine: Engine) -> None:
    before = answer(engine, PROMPT, max_tokens=20, ignore_eos=True)
    engine.record(request("r", PROMPT, max_tokens=59, ignore_eos=True), 2)
    assert not engine.has_work()
    after = answer(engine, PROMPT, max_tokens=20, ignore_eos=True)
    assert after.steps == before.steps


def test_a_short_answer_has_few_trees(engine: Engine) -> None:
    assert engine.record(request("r", PROMPT, max_tokens=1, ignore_eos=True), STEPS) == []


def test_only_an_idle_engine_that_drafts_records(engine: Engine, tiny_pair: TinyPair) -> None:
    engine.submit(request("busy", PROMPT))
    with pytest.raises(ValueError, match="while no request"):
        engine.record(request("r", PROMPT), STEPS)
    plain = Engine(tiny_pair.target, None, Method("autoregressive"), 1, 64)
    with pytest.raises(ValueError, match="drafts nothing"):
        plain.record(request("r", PROMPT), STEPS)
    with pytest.raises(ValueError, match="empty"):
        Engine(tiny_pair.target, tiny_pair.drafter, engine.method, 1, 64).record(request("r", []), STEPS)
