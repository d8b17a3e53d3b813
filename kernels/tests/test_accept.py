import dataclasses

import pytest
import torch
from scipy.stats import chisquare

import ddtree


def naive(tree: ddtree.Tree, targets: torch.Tensor, b: int) -> tuple[list[int], list[int]]:
    path, emitted = [0], []
    while True:
        token = int(targets[b, path[-1]])
        emitted.append(token)
        size = int(tree.sizes[b])
        matches = [i for i in range(1, size) if tree.parents[b, i] == path[-1] and tree.tokens[b, i] == token]
        if not matches:
            return path, emitted
        path.append(matches[0])


@pytest.mark.parametrize("seed", range(20))
def test_walk_equals_the_naive_walk(tree_of, seed):
    tree = tree_of(seed, 4, 6, 5, 30, 40, chain=bool(seed % 2))
    generator = torch.Generator().manual_seed(seed)
    # Mostly the token of a random child, so that walks go deep; else any token, also 0, which padding carries.
    targets = torch.randint(0, 20, (4, 40), generator=generator)
    for b in range(4):
        for i in range(int(tree.sizes[b])):
            children = [j for j in range(1, int(tree.sizes[b])) if tree.parents[b, j] == i]
            if children and torch.rand((), generator=generator) < 0.8:
                pick = children[int(torch.randint(len(children), (), generator=generator))]
                targets[b, i] = tree.tokens[b, pick]
    result = ddtree.accept_greedy(tree, targets)
    for b in range(4):
        path, emitted = naive(tree, targets, b)
        pad = [-1] * (7 - len(path))
        assert result.node_index[b].tolist() == path + pad
        assert result.emitted[b].tolist() == emitted + pad
        assert result.lengths[b] == len(path)
        assert result.bonus_tokens[b] == emitted[-1]


def test_the_whole_chain_can_be_accepted():
    ids = torch.tensor([[[5, 6], [7, 8], [9, 4]]])
    tree = ddtree.build_tree(torch.full((1, 3, 2), -1.0), ids, torch.tensor([1]), 3, max_nodes=4, chain=True)
    result = ddtree.accept_greedy(tree, torch.tensor([[5, 7, 9, 3]]))
    assert result.node_index.tolist() == [[0, 1, 2, 3]]
    assert result.emitted.tolist() == [[5, 7, 9, 3]]
    assert result.lengths.tolist() == [4]
    assert result.bonus_tokens.tolist() == [3]


def test_sample_and_walk_emits_the_target_distribution():
    """Three tokens, a Markov target: the law of the emitted sequence, continued by plain sampling, is the target's."""
    start, step = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.1, 0.8]])
    draft = torch.log(torch.tensor([[[0.5, 0.4], [0.6, 0.3]]]))
    tree = ddtree.build_tree(draft, torch.tensor([[[0, 2], [1, 2]]]), torch.tensor([0]), 4, max_nodes=5)
    laws = torch.stack([start if i == 0 else step[int(tree.tokens[0, i])] for i in range(5)])
    generator = torch.Generator().manual_seed(11)
    trials = 6000
    samples = torch.multinomial(laws, trials, replacement=True, generator=generator).T.contiguous()
    many = ddtree.Tree(
        *(
            field.expand(trials, *field.shape[1:]) if isinstance(field, torch.Tensor) else field
            for field in vars(tree).values()
        )
    )
    emitted = ddtree.accept_sampled(many, samples).emitted
    missing = emitted[:, 1] < 0
    assert 0 < missing.sum() < trials
    assert (emitted[:, 2] >= 0).any()
    second = torch.multinomial(step[emitted[:, 0].long()], 1, generator=generator)[:, 0].int()
    pairs = emitted[:, 0] * 3 + torch.where(missing, second, emitted[:, 1])
    expected = (start[:, None] * step).flatten().double() * trials
    assert chisquare(torch.bincount(pairs, minlength=9), expected * trials / expected.sum()).pvalue > 1e-3


def test_links_in_a_circle_are_refused(tree_of):
    tree = tree_of(0, 2, 3, 3, 4, 5)
    circle = dataclasses.replace(tree, next_sibling=torch.ones_like(tree.next_sibling))
    with pytest.raises(ValueError, match="lead in a circle"):
        ddtree.accept_greedy(circle, torch.full((2, 5), -5))


def test_bad_input_is_named(tree_of):
    tree = tree_of(0, 2, 3, 3, 4, 5)
    with pytest.raises(ValueError, match=r"target_tokens has shape \[2, 4\], allowed is \[2, 5\]"):
        ddtree.accept_greedy(tree, torch.zeros(2, 4, dtype=torch.int32))
    with pytest.raises(ValueError, match=r"samples has dtype torch\.float32"):
        ddtree.accept_sampled(tree, torch.zeros(2, 5))
