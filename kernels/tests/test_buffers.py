"""Results written into buffers that keep their addresses, as a captured graph needs."""

import dataclasses

import pytest
import torch

import ddtree

TENSORS = [field.name for field in dataclasses.fields(ddtree.Tree) if field.name != "draft_depth"]


def drafted(batch: int = 3, depth: int = 4, k: int = 3) -> tuple[torch.Tensor, ...]:
    top = ddtree.topk_logprobs(torch.randn(batch, depth, 20, generator=torch.Generator().manual_seed(1)), k)
    return top.log_probs, top.token_ids, torch.arange(batch)


def step(*tensors: torch.Tensor) -> dict[str, torch.Tensor]:
    """A step whose every result has its place beforehand; the batch is that of the inputs."""
    log_probs, ids, roots, prefix, hidden = tensors
    (batch, depth, _), nodes, device = log_probs.shape, hidden.shape[1], log_probs.device
    tree, accepted = ddtree.Tree.empty(batch, nodes, depth, device), ddtree.Acceptance.empty(batch, depth, device)
    at = torch.full((batch, nodes), -7, dtype=torch.int64, device=device)
    rows = torch.full((batch, depth + 1, hidden.shape[2]), -7.0, device=device)
    results = {name: getattr(tree, name) for name in TENSORS} | vars(accepted) | {"positions": at, "rows": rows}
    addresses = [tensor.data_ptr() for tensor in results.values()]
    assert ddtree.build_tree(log_probs, ids, roots, nodes - 1, max_nodes=nodes, out=tree) is tree
    assert ddtree.positions(tree, prefix, out=at) is at
    assert ddtree.accept_sampled(tree, tree.tokens, out=accepted) is accepted
    assert ddtree.gather_rows(hidden, accepted, out=rows) is rows
    assert [tensor.data_ptr() for tensor in results.values()] == addresses
    return results


@pytest.mark.parametrize("by", ["reference", "kernel"])
def test_a_step_into_buffers_equals_one_without(by_kernel, by):
    inputs = (*drafted(), torch.tensor([5, 0, 9], dtype=torch.int32), torch.randn(3, 8, 6))

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        return torch.cat([tensor.double().flatten() for tensor in step(*tensors).values()])

    got = by_kernel(run, *inputs) if by == "kernel" else run(*inputs)
    tree = ddtree.build_tree(*inputs[:3], 7, max_nodes=8)
    accepted = ddtree.accept_sampled(tree, tree.tokens)
    want = [getattr(tree, name) for name in TENSORS] + list(vars(accepted).values())
    want += [ddtree.positions(tree, inputs[3]), ddtree.gather_rows(inputs[4], accepted)]
    assert torch.equal(got, torch.cat([tensor.double().flatten() for tensor in want]))


def test_the_type_of_positions_is_that_of_the_prefix(tree_of):
    tree = tree_of(0, 2, 3, 3, 6, 8)
    assert ddtree.positions(tree, torch.tensor([1, 2])).dtype == torch.int64
    assert ddtree.positions(tree, torch.tensor([1, 2], dtype=torch.int32)).dtype == torch.int32


def test_buffers_of_another_shape_are_named():
    inputs = drafted()
    for change, message in (
        ({"tokens": torch.empty(3, 9, dtype=torch.int32)}, r"out.tokens has shape \[3, 9\], allowed is \[3, 8\]"),
        ({"scores": torch.empty(3, 8, dtype=torch.float64)}, "out.scores has dtype torch.float64"),
        ({"ranks": torch.empty(3, 16, dtype=torch.int32)[:, ::2]}, r"out.ranks has strides \[16, 2\]"),
        ({"draft_depth": 5}, "out.draft_depth is 5, log_probs has 4 depths"),
    ):
        out = dataclasses.replace(ddtree.Tree.empty(3, 8, 4, "cpu"), **change)
        with pytest.raises(ValueError, match=message):
            ddtree.build_tree(*inputs, 7, max_nodes=8, out=out)
    tree = ddtree.build_tree(*inputs, 7, max_nodes=8)
    with pytest.raises(ValueError, match=r"out\.node_index has shape"):
        ddtree.accept_greedy(tree, tree.tokens, out=ddtree.Acceptance.empty(3, 5, "cpu"))
    with pytest.raises(ValueError, match="out has shape"):
        ddtree.positions(tree, torch.zeros(3).int(), out=torch.empty(3, 7, dtype=torch.int32))
    with pytest.raises(ValueError, match="out has dtype"):
        ddtree.gather_rows(torch.zeros(3, 8, 2), ddtree.Acceptance.empty(3, 4, "cpu"), out=torch.empty(3, 5, 2).half())
