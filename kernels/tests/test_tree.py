import dataclasses

import numpy as np
import pytest
import torch

import ddtree


def build(rows: np.ndarray, budgets, max_nodes: int, chain: bool = False) -> ddtree.Tree:
    batch, depth, k = rows.shape
    ids = torch.arange(batch * depth * k).view(batch, depth, k) + 1000
    return ddtree.build_tree(
        torch.tensor(rows), ids, torch.arange(batch) + 7, budgets, max_nodes=max_nodes, chain=chain
    )


def nodes(tree: ddtree.Tree, request: int) -> list[tuple]:
    size = int(tree.sizes[request])
    columns = (tree.parents, tree.depths, tree.ranks, tree.scores)
    return list(zip(*(column[request, 1:size].tolist() for column in columns), strict=True))


@pytest.mark.parametrize("seed", range(4))
def test_equals_plain_heap_node_for_node(plain_heap, random_log_probs, seed):
    rng = np.random.default_rng(seed)
    for _ in range(3000):
        depth, k = int(rng.integers(1, 7)), int(rng.integers(1, 7))
        rows, budget, chain = random_log_probs(rng, depth, k), int(rng.integers(1, 24)), bool(rng.integers(2))
        tree = build(rows[None], budget, 24, chain)
        expected = [(p, d, r, float(s)) for p, d, r, s in plain_heap(rows, budget, chain)]
        assert nodes(tree, 0) == expected, (rows, budget, chain)


def test_large_budgets_equal_plain_heap(plain_heap, random_log_probs):
    rng = np.random.default_rng(9)
    for budget in (63, 64, 127, 255):
        rows = random_log_probs(rng, 15, 16)
        for chain in (False, True):
            expected = [(p, d, r, float(s)) for p, d, r, s in plain_heap(rows, budget, chain)]
            assert nodes(build(rows[None], budget, 256, chain), 0) == expected


def test_budgets_per_request(plain_heap, random_log_probs):
    rng = np.random.default_rng(5)
    rows = np.stack([random_log_probs(rng, 5, 4) for _ in range(8)])
    budgets = torch.tensor([1, 2, 3, 5, 8, 13, 21, 31], dtype=torch.int32)
    tree = build(rows, budgets, 32)
    for request, budget in enumerate(budgets.tolist()):
        found = plain_heap(rows[request], budget, False)
        assert [(p, d, r, float(s)) for p, d, r, s in found] == nodes(tree, request)
        assert tree.sizes[request] == len(found) + 1


def test_known_tree():
    rows = np.log(np.array([[[0.6, 0.4], [0.9, 0.1], [0.5, 0.5]]], dtype=np.float32))
    tree = build(rows, 4, 6)
    # .6, .6*.9=.54, .4, .4*.9=.36, then .27 twice (not taken)
    assert tree.parents[0].tolist() == [-1, 0, 1, 0, 3, -1]
    assert tree.depths[0].tolist() == [0, 1, 2, 1, 2, 0]
    assert tree.ranks[0].tolist() == [-1, 0, 0, 1, 0, -1]
    assert tree.tokens[0].tolist() == [7, 1000, 1002, 1001, 1002, 0]
    assert tree.first_child[0].tolist() == [1, 2, -1, 4, -1, -1]
    assert tree.next_sibling[0].tolist() == [-1, 3, -1, -1, -1, -1]
    assert tree.ancestors[0, :, 0].tolist() == [1, 0b11, 0b111, 0b1001, 0b11001, 0b100000]
    assert tree.sizes.tolist() == [5]


def test_k_one_is_the_chain_and_stops_at_its_end():
    tree = build(np.full((1, 4, 1), -0.5, dtype=np.float32), 9, 10)
    assert tree.parents[0].tolist() == [-1, 0, 1, 2, 3, -1, -1, -1, -1, -1]
    assert tree.sizes.tolist() == [5]


def test_budget_beyond_all_prefixes_takes_them_all():
    tree = build(np.full((1, 2, 3), -1.0, dtype=np.float32), 30, 31)
    assert tree.sizes.tolist() == [1 + 3 + 9]
    assert tree.parents[0, 1:13].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_chain_with_budget_of_its_depth_is_the_chain():
    rows = np.tile(np.float32([-0.7, -0.7]), (1, 6, 1))
    tree = build(rows, 6, 7, chain=True)
    assert tree.parents[0].tolist() == [-1, 0, 1, 2, 3, 4, 5]
    assert tree.ranks[0].tolist() == [-1, 0, 0, 0, 0, 0, 0]
    assert build(rows, 6, 7).depths[0].max() < 6  # free best-first spends the same budget on siblings


def test_chain_longer_than_the_budget_is_cut():
    tree = build(np.tile(np.float32([-0.7, -0.7]), (1, 6, 1)), 3, 7, chain=True)
    assert tree.depths[0].tolist() == [0, 1, 2, 3, 0, 0, 0]


@pytest.mark.parametrize("chain", [False, True])
def test_impossible_prefixes_are_never_nodes(chain):
    rows = np.float32([[[-0.1, -np.inf], [-np.inf, -np.inf], [-0.1, -0.2]]])
    assert build(rows, 5, 6, chain).sizes.tolist() == [2]
    assert build(np.full((1, 2, 2), -np.inf, dtype=np.float32), 3, 4, chain).sizes.tolist() == [1]


@pytest.mark.parametrize("chain", [False, True])
def test_nan_counts_as_impossible_and_positive_as_certain(chain):
    rows = np.float32([[[0.5, np.nan], [np.nan, -1.0], [-1.0, -2.0]]])
    clean = np.float32([[[0.0, -np.inf], [-np.inf, -1.0], [-1.0, -2.0]]])
    dirty_tree, clean_tree = build(rows, 5, 6, chain), build(clean, 5, 6, chain)
    assert nodes(dirty_tree, 0) == nodes(clean_tree, 0)
    assert build(np.full((1, 3, 2), np.nan, dtype=np.float32), 5, 6, chain).sizes.tolist() == [1]


def test_links_list_the_children_in_order(random_log_probs):
    rng = np.random.default_rng(2)
    tree = build(np.stack([random_log_probs(rng, 6, 5) for _ in range(20)]), 40, 70)
    for request in range(20):
        size = int(tree.sizes[request])
        parents, child, sibling = (t[request].tolist() for t in (tree.parents, tree.first_child, tree.next_sibling))
        for node in range(70):
            walked, at = [], child[node]
            while at >= 0:
                walked.append(at)
                at = sibling[at]
            assert walked == [i for i in range(1, size) if parents[i] == node]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"budgets": 0}, "budget is 0, allowed is 1 to max_nodes - 1 = 7"),
        ({"budgets": 8}, "budget is 8"),
        ({"budgets": 2.5}, "budgets is 2.5, allowed is a whole number"),
        ({"max_nodes": 8.5}, "max_nodes is 8.5, allowed is a whole number"),
        ({"budgets": torch.tensor([3, 9])}, "budget is 9"),
        ({"budgets": torch.tensor([3])}, r"budgets has shape \[1\]"),
        ({"max_nodes": 1}, "max_nodes is 1"),
        ({"log_probs": torch.zeros(2, 3, 4, dtype=torch.float64)}, "log_probs has dtype torch.float64"),
        ({"log_probs": torch.zeros(2, 3)}, r"log_probs has shape \[2, 3\]"),
        ({"token_ids": torch.zeros(2, 3, 5, dtype=torch.int32)}, r"token_ids has shape \[2, 3, 5\]"),
        ({"token_ids": torch.zeros(2, 3, 4)}, "token_ids has dtype"),
        ({"root_tokens": torch.zeros(3, dtype=torch.int32)}, "root_tokens has shape"),
    ],
)
def test_bad_input_is_named(change, message):
    arguments = {
        "log_probs": torch.zeros(2, 3, 4),
        "token_ids": torch.zeros(2, 3, 4, dtype=torch.int32),
        "root_tokens": torch.zeros(2, dtype=torch.int32),
        "budgets": 3,
        "max_nodes": 8,
    }
    with pytest.raises(ValueError, match=message):
        ddtree.build_tree(**{**arguments, **change})


@pytest.mark.parametrize(
    ("field", "at", "value"),
    [
        ("parents", (1, 3), 4),  # after its child
        ("parents", (1, 3), -1),
        ("parents", (1, 19), 0),  # padding
        ("depths", (1, 3), 0),
        ("ancestors", (1, 3, 0), 0b11111),
        ("ancestors", (1, 3, 0), 0),
        ("first_child", (1, 3), 3),
        ("next_sibling", (1, 3), 1),
        ("sizes", (1,), 21),
        ("sizes", (1,), 0),
    ],
)
def test_what_is_no_tree_is_found(tree_of, field, at, value):
    tree = tree_of(0, 2, 5, 4, 12, 20)
    ddtree.check_tree(tree)
    broken = getattr(tree, field).clone()
    broken[at] = value
    with pytest.raises(ValueError, match=r"request, node \[\[1, "):
        ddtree.check_tree(dataclasses.replace(tree, **{field: broken}))


def test_wide_trees_pass_and_words_are_counted(tree_of):
    tree = tree_of(1, 2, 15, 6, 199, 200, chain=True)
    ddtree.check_tree(tree)
    with pytest.raises(ValueError, match=r"ancestors has shape \[2, 200, 3\], allowed is \[2, 200, 4\]"):
        ddtree.check_tree(dataclasses.replace(tree, ancestors=tree.ancestors[..., :3]))
