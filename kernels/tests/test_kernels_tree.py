"""The small kernels against the references."""

import numpy as np
import pytest
import torch

import ddtree
from ddtree.triton import mask


def same(left: ddtree.Tree, right: ddtree.Tree) -> bool:
    return all(torch.equal(getattr(left, n), getattr(right, n)) for n in vars(left) if n != "draft_depth")


@pytest.mark.parametrize("chain", [False, True])
@pytest.mark.parametrize(("depth", "k", "nodes"), [(4, 3, 12), (1, 1, 2), (6, 5, 40), (3, 2, 66)])
def test_build_equals_the_reference(by_kernel, random_log_probs, chain, depth, k, nodes):
    rng = np.random.default_rng(nodes)
    rows = torch.tensor(np.stack([random_log_probs(rng, depth, k) for _ in range(16)]))
    ids = torch.randint(1, 1000, rows.shape)
    budgets = torch.tensor(rng.integers(1, nodes, 16), dtype=torch.int32)
    arguments = (rows, ids, torch.arange(16), budgets)
    tree = by_kernel(ddtree.build_tree, *arguments, max_nodes=nodes, chain=chain)
    assert same(tree, ddtree.build_tree(*arguments, max_nodes=nodes, chain=chain))


@pytest.mark.parametrize("budget", [63, 200])
def test_build_of_large_budgets(by_kernel, random_log_probs, budget):
    rows = torch.tensor(random_log_probs(np.random.default_rng(budget), 15, 16))[None]
    arguments = (rows, torch.arange(240).view(1, 15, 16), torch.tensor([3]), budget)
    tree = by_kernel(ddtree.build_tree, *arguments, max_nodes=budget + 1)
    assert same(tree, ddtree.build_tree(*arguments, max_nodes=budget + 1))


@pytest.mark.parametrize("chain", [False, True])
def test_build_with_nan_ends(by_kernel, chain):
    rows = torch.tensor([[[0.5, torch.nan], [torch.nan, -1.0], [-1.0, -2.0]], [[torch.nan] * 2] * 3])
    arguments = (rows, torch.ones(2, 3, 2, dtype=torch.int32), torch.tensor([1, 2]), 5)
    tree = by_kernel(ddtree.build_tree, *arguments, max_nodes=6, chain=chain)
    assert same(tree, ddtree.build_tree(*arguments, max_nodes=6, chain=chain))


def test_build_refuses_what_its_keys_cannot_hold(by_kernel):
    rows, ids, root = torch.zeros(1, 2, 3), torch.zeros(1, 2, 3, dtype=torch.int32), torch.tensor([1])
    with pytest.raises(ValueError, match="max_nodes is 257"):
        by_kernel(ddtree.build_tree, rows, ids, root, 4, max_nodes=257)


@pytest.mark.parametrize("nodes", [7, 70])
def test_masks(by_kernel, tree_of, nodes):
    tree, prefix = tree_of(4, 3, 4, 3, 6, nodes), torch.tensor([5, 0, 1030])
    assert torch.equal(by_kernel(ddtree.ancestor_mask, tree), ddtree.ancestor_mask(tree))
    assert torch.equal(by_kernel(ddtree.positions, tree, prefix), ddtree.positions(tree, prefix))
    for fill in (True, False):
        out = torch.full((nodes * (1035 + 3 * nodes) + 5,), 7, dtype=torch.uint8)
        expected = ddtree.sglang_mask(tree, prefix, out=out.clone(), fill_prefix=fill)
        assert torch.equal(by_kernel(ddtree.sglang_mask, tree, prefix, out=out, fill_prefix=fill), expected)


@pytest.mark.parametrize("prefix", [[5, 0, 1030], [5, -900, 3]], ids=["too short", "negative prefix"])
def test_a_mask_stays_inside_its_buffer(by_kernel, tree_of, prefix):
    """On the GPU nobody compares lengths: they are only known there."""
    margin, size = 2000, 120

    def written(ancestors, prefix, out):
        mask.sglang_mask(ancestors, prefix, out[margin : margin + size], True)
        return out

    out = torch.full((margin + size + 2000,), 9, dtype=torch.uint8)
    result = by_kernel(written, tree_of(4, 3, 4, 3, 6, 7).ancestors, torch.tensor(prefix), out)
    assert (result[:margin] == 9).all()
    assert (result[margin + size :] == 9).all()
    assert (result[margin : margin + size] != 9).any()


@pytest.mark.parametrize("seed", range(3))
def test_walk_equals_the_reference(by_kernel, tree_of, seed):
    tree = tree_of(seed, 8, 5, 3, 20, 24)
    children = tree.first_child.clamp(min=0)
    targets = tree.tokens.gather(1, children.long())
    noise = torch.rand(8, 24, generator=torch.Generator().manual_seed(seed)) < 0.2
    targets = torch.where(noise, 5, targets)
    expected = ddtree.accept_greedy(tree, targets)
    assert expected.lengths.max() > 3
    result = by_kernel(ddtree.accept_greedy, tree, targets)
    assert all(torch.equal(getattr(result, name), getattr(expected, name)) for name in vars(expected))
