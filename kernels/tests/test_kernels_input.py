"""What the kernels refuse, and what they survive where refusing would mean waiting."""

import dataclasses

import pytest
import torch

import ddtree


def spread(tensor: torch.Tensor) -> torch.Tensor:
    """The same values with a stride of two along the last axis."""
    return tensor.repeat_interleave(2, dim=-1)[..., ::2]


def attention(tree: ddtree.Tree, *, query=None, pool=None, prefix=None) -> tuple:
    batch, nodes = tree.tokens.shape
    kv = torch.randn(batch, nodes, 2, 16)
    pool = torch.randn(40, 2, 16) if pool is None else pool
    query = torch.randn(batch, nodes, 4, 16) if query is None else query
    prefix = torch.tensor([5, 9]) if prefix is None else prefix
    return (query, kv, kv, pool, pool, torch.arange(40).view(2, 20).int(), prefix, tree)


def test_wrong_strides_are_named(by_kernel, tree_of):
    tree = tree_of(0, 2, 3, 3, 6, 8)
    spread_tree = dataclasses.replace(tree, ancestors=spread(tree.ancestors), parents=spread(tree.parents))
    cuts = (torch.ones(2), torch.zeros(2, dtype=torch.int32), torch.ones(2), torch.zeros(2), torch.zeros(2, 8))
    accepted = ddtree.accept_greedy(tree, tree.tokens)
    rows, ids, roots = torch.zeros(2, 2, 3), torch.zeros(2, 2, 3, dtype=torch.int32), torch.zeros(2).int()
    cache, prefix, logits = torch.zeros(1, 2, 30, 2, 4), torch.tensor([1, 2]), torch.randn(2, 8, 50)
    out = torch.zeros(999, dtype=torch.uint8)
    calls = {
        "logits has stride 2 along the vocabulary": (ddtree.topk_logprobs, spread(torch.randn(1, 2, 50)), 4),
        "logits has stride 2 along": (ddtree.sample_target, spread(logits), *cuts),
        r"temperature has strides \[0\], allowed on CUDA is contiguous": (
            *(ddtree.sample_target, logits, torch.ones(1).expand(2), *cuts[1:]),
        ),
        "root_tokens has strides": (_build, rows, ids, spread(roots), 3),
        "budgets has strides": (_build, rows, ids, roots, spread(torch.tensor([3, 3]))),
        "query has stride 2 along the head": (
            *(ddtree.tree_attention, *attention(tree, query=spread(torch.randn(2, 8, 4, 16)))),
        ),
        "key_pool has stride 2": (ddtree.tree_attention, *attention(tree, pool=spread(torch.randn(40, 2, 16)))),
        "prefix_lens has strides": (ddtree.tree_attention, *attention(tree, prefix=spread(prefix))),
        "ancestors has strides": (ddtree.tree_attention, *attention(spread_tree)),
        "parents has strides": (ddtree.accept_greedy, spread_tree, tree.tokens),
        "prefix_lens has strides .2.": (ddtree.compact_kv, cache, cache, accepted, spread(prefix)),
        "out has strides": (_mask, tree, prefix, spread(out)),
    }
    for message, (function, *arguments) in calls.items():
        with pytest.raises(ValueError, match=message):
            by_kernel(function, *arguments)


def _build(rows, ids, roots, budgets):
    return ddtree.build_tree(rows, ids, roots, budgets, max_nodes=8)


def _mask(tree, prefix, out):
    return ddtree.sglang_mask(tree, prefix, out=out)


def test_sizes_beyond_the_kernels_are_named(by_kernel, tree_of):
    tree = tree_of(0, 2, 3, 3, 6, 8)
    with pytest.raises(ValueError, match="k is 257, allowed on CUDA is 1 to 256"):
        by_kernel(ddtree.topk_logprobs, torch.randn(1, 1, 300), 257)
    with pytest.raises(ValueError, match="has 257 candidates a depth"):
        by_kernel(_build, torch.zeros(2, 2, 257), torch.zeros(2, 2, 257).int(), torch.zeros(2).int(), 3)
    with pytest.raises(ValueError, match="has 256 depths"):
        by_kernel(_build, torch.zeros(2, 256, 1), torch.zeros(2, 256, 1).int(), torch.zeros(2).int(), 3)
    kv = torch.zeros(2, 8, 2, 128)
    case = (torch.zeros(2, 8, 4, 128), kv, kv, torch.zeros(40, 2, 128), torch.zeros(40, 2, 128), *attention(tree)[5:])
    with pytest.raises(ValueError, match=r"the head size is 128, allowed on CUDA for torch\.float32 is 1 to 64"):
        by_kernel(ddtree.tree_attention, *case)


def test_budgets_on_the_device_are_clamped(by_kernel, monkeypatch):
    monkeypatch.setattr("ddtree.tree._check_budgets", lambda budgets, nodes: None)  # as on CUDA, where nothing waits
    rows, ids = torch.full((3, 4, 3), -1.0), torch.ones(3, 4, 3, dtype=torch.int32)
    tree = by_kernel(_build, rows, ids, torch.zeros(3).int(), torch.tensor([0, -5, 99]))
    assert tree.sizes.tolist() == [2, 2, 8]


def test_parents_in_a_circle_end_the_walk(by_kernel, tree_of):
    tree = tree_of(0, 2, 3, 3, 6, 8)
    parents = torch.tensor([[1, 0, -1, -1, -1, -1, -1, -1]] * 2, dtype=torch.int32)
    same = torch.ones_like(tree.tokens)
    circle = dataclasses.replace(tree, parents=parents, tokens=same)
    accepted = by_kernel(ddtree.accept_greedy, circle, same)
    assert accepted.lengths.tolist() == [tree.draft_depth + 1] * 2


def test_nan_keys_stay_with_their_request(by_kernel, tree_of):
    tree = tree_of(0, 2, 3, 3, 6, 8)
    case = attention(tree)
    pool = case[3].clone()
    pool[:5] = torch.nan
    out = by_kernel(ddtree.tree_attention, *case[:3], pool, pool, *case[5:])
    assert out[0].isnan().all()
    torch.testing.assert_close(out[1], ddtree.tree_attention(*case[:3], pool, pool, *case[5:])[1])
    assert not out[1].isnan().any()
