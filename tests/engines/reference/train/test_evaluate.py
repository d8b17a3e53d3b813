import pytest
import torch

from ddtree import accept_greedy, build_tree
from engines.reference.train.evaluate import _Replay, _Tally

DEPTH, VOCABULARY, ANCHORS = 4, 12, 60


@pytest.fixture
def replay():
    """Random drafts over a random text whose continuation is often, not always, what they think likely."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(ANCHORS, DEPTH, VOCABULARY, generator=generator) * 2
    truth = torch.distributions.Categorical(logits=logits * 1.5).sample()
    known = torch.arange(DEPTH) < torch.arange(ANCHORS, 0, -1)[:, None]
    matches = (logits.argmax(-1) == truth) & known
    return _Replay(logits, torch.zeros(ANCHORS, dtype=torch.long), truth, matches, known)


def greedy_targets(tree, truth, known):
    """What the target says at each node, as far as the text tells: the next true token on the true path, else none."""
    wanted = torch.full(tree.tokens.shape, -5, dtype=torch.int32)
    for row in range(len(truth)):
        on_path = {0: 0}
        for node in range(1, int(tree.sizes[row])):
            depth = int(tree.depths[row, node])
            parent_on_path = int(tree.parents[row, node]) in on_path
            if parent_on_path and known[row, depth - 1] and tree.tokens[row, node] == truth[row, depth - 1]:
                on_path[node] = depth
        for node, depth in on_path.items():
            if depth < truth.shape[1] and known[row, depth]:
                wanted[row, node] = truth[row, depth]
    return wanted


def test_tree_acceptance_is_that_of_a_tree_built_for_each_budget_alone(replay):
    budgets = (1, 3, 7, 11)
    found = replay.tree_accepted(budgets)
    log_probs, ids = replay.logits.log_softmax(-1).topk(11, dim=-1)
    for budget in budgets:
        tree = build_tree(log_probs, ids.int(), replay.seeds.int(), budget, max_nodes=12)
        lengths = accept_greedy(tree, greedy_targets(tree, replay.truth, replay.known)).lengths
        assert (found[budget] + 1).tolist() == lengths.tolist()
    assert found[11].sum() > found[3].sum() > found[1].sum() > 0


def test_a_tally_counts_the_steps_of_a_decoder():
    tally = _Tally()
    # Anchors 0 (accepts 2) -> 3 (accepts 0) -> 4 (accepts 1, the end): 6 tokens in 3 steps.
    tally.add(torch.tensor([2, 9, 9, 0, 1, 0]))
    assert (tally.steps, tally.emitted, tally.length) == (3, 6, 2.0)
