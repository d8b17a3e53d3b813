"""Row moves by kernel against the reference."""

import pytest
import torch

import ddtree

PATHS = [[0, 1, 2, 3, 7], [0], [0, 2, 3, 4], [0, 6]]


def acceptance() -> ddtree.Acceptance:
    index = torch.tensor([path + [-1] * (6 - len(path)) for path in PATHS], dtype=torch.int32)
    lengths = torch.tensor([len(path) for path in PATHS], dtype=torch.int32)
    return ddtree.Acceptance(index, lengths, torch.zeros_like(lengths), index)


def moved_kv(keys, values, accepted, prefix):
    ddtree.compact_kv(keys, values, accepted, prefix)
    return keys, values


@pytest.mark.parametrize("transposed", [False, True])
def test_kv(by_kernel, transposed):
    keys, values = torch.randn(3, 4, 30, 2, 300), torch.randn(3, 4, 30, 2, 8)
    if transposed:
        keys = keys.transpose(2, 3).contiguous().transpose(2, 3)
    prefix = torch.tensor([5, 0, 11, 20], dtype=torch.int32)
    expected = moved_kv(keys.clone(), values.clone(), acceptance(), prefix)

    def run(keys, values, accepted, prefix):
        ddtree.compact_kv(keys, values, accepted, prefix)
        return torch.cat([keys, values], dim=-1)

    result = by_kernel(run, keys.clone(), values.clone(), acceptance(), prefix)
    assert torch.equal(result, torch.cat(expected, dim=-1))


@pytest.mark.parametrize(("dtype", "width"), [(torch.float32, 8), (torch.bfloat16, 3), (torch.uint8, 5)])
def test_slots(by_kernel, dtype, width):
    pools = torch.randint(0, 200, (5, 64, 2, width)).to(dtype)
    slots = torch.randperm(64)[:32].view(4, 8)
    expected = pools.clone()
    ddtree.compact_slots(ddtree.PoolTable.of(list(expected)), slots, acceptance())

    def run(pools, slots, accepted):
        ddtree.compact_slots(ddtree.PoolTable.of(list(pools)), slots, accepted)
        return pools

    assert torch.equal(by_kernel(run, pools.clone(), slots, acceptance()), expected)
    assert not torch.equal(pools, expected)


def test_gather(by_kernel):
    hidden = torch.randn(4, 8, 1100)
    assert torch.equal(by_kernel(ddtree.gather_rows, hidden, acceptance()), ddtree.gather_rows(hidden, acceptance()))
