import pytest
import torch

import ddtree


def walked(tree: ddtree.Tree) -> torch.Tensor:
    batch, nodes = tree.parents.shape
    mask = torch.zeros(batch, nodes, nodes, dtype=torch.bool)
    for b in range(batch):
        for i in range(nodes):
            at = i
            while at >= 0:
                mask[b, i, at] = True
                at = int(tree.parents[b, at])
    return mask


@pytest.mark.parametrize(("budget", "nodes"), [(5, 8), (63, 64), (64, 65), (150, 200)])
def test_ancestor_mask_equals_the_parent_walk(tree_of, budget, nodes):
    tree = tree_of(3, 3, 8, 6, budget, nodes)
    assert tree.ancestors.shape[-1] == -(-nodes // 64)
    assert torch.equal(ddtree.ancestor_mask(tree), walked(tree))


def test_positions_are_prefix_plus_depth(tree_of):
    tree = tree_of(1, 2, 4, 3, 6, 9)
    prefix = torch.tensor([10, 1000])
    assert torch.equal(ddtree.positions(tree, prefix), prefix[:, None] + tree.depths)
    assert ddtree.positions(tree, prefix.int()).dtype == torch.int32


def test_sglang_layout(tree_of):
    tree, prefix, nodes = tree_of(4, 3, 4, 3, 6, 7), [5, 0, 11], 7
    expected = [
        torch.cat([torch.ones(nodes, length, dtype=torch.bool), walked(tree)[b]], dim=1).flatten()
        for b, length in enumerate(prefix)
    ]
    flat = ddtree.sglang_mask(tree, torch.tensor(prefix))
    assert flat.dtype == torch.uint8
    assert torch.equal(flat.bool(), torch.cat(expected))


def test_sglang_mask_in_place_leaves_the_prefix_and_the_rest_alone(tree_of):
    tree, nodes = tree_of(4, 1, 4, 3, 6, 7), 7
    out = torch.full((200,), 9, dtype=torch.uint8)
    assert ddtree.sglang_mask(tree, torch.tensor([3]), out=out, fill_prefix=False) is out
    block = out[: nodes * 10].view(nodes, 10)
    assert (block[:, :3] == 9).all()
    assert torch.equal(block[:, 3:].bool(), walked(tree)[0])
    assert (out[nodes * 10 :] == 9).all()


def test_bad_input_is_named(tree_of):
    tree = tree_of(4, 1, 4, 3, 6, 7)
    with pytest.raises(ValueError, match="the mask needs 70"):
        ddtree.sglang_mask(tree, torch.tensor([3]), out=torch.zeros(69, dtype=torch.uint8))
    with pytest.raises(ValueError, match=r"out has dtype torch\.bool"):
        ddtree.sglang_mask(tree, torch.tensor([3]), out=torch.zeros(70, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"prefix_lens has shape \[2\], allowed is \[1\]"):
        ddtree.positions(tree, torch.tensor([3, 4]))
    with pytest.raises(ValueError, match=r"prefix_lens is \[-3\], allowed is 0 or more"):
        ddtree.sglang_mask(tree, torch.tensor([-3]))
    with pytest.raises(ValueError, match=r"prefix_lens has dtype torch\.float32"):
        ddtree.positions(tree, torch.tensor([3.0]))
