import pytest
import torch

import ddtree


def acceptance(paths: list[list[int]], width: int) -> ddtree.Acceptance:
    index = torch.tensor([path + [-1] * (width - len(path)) for path in paths], dtype=torch.int32)
    lengths = torch.tensor([len(path) for path in paths], dtype=torch.int32)
    return ddtree.Acceptance(index, lengths, torch.zeros_like(lengths), index)


PATHS = [[0, 1, 2, 3, 7], [0], [0, 2, 3, 4], [0, 6]]


def test_kv_rows_move_to_the_front_and_nothing_else_changes():
    generator = torch.Generator().manual_seed(0)
    keys, values = (torch.randn(3, 4, 30, 2, 8, generator=generator) for _ in range(2))
    before = (keys.clone(), values.clone())
    prefix = torch.tensor([5, 0, 11, 20])
    ddtree.compact_kv(keys, values, acceptance(PATHS, 6), prefix)
    for cache, old in zip((keys, values), before, strict=True):
        expected = old.clone()
        for b, path in enumerate(PATHS):
            for j, node in enumerate(path):
                expected[:, b, prefix[b] + j] = old[:, b, prefix[b] + node]
        assert torch.equal(cache, expected)


def test_kv_views_of_another_layout_are_written_through():
    stored = torch.randn(2, 4, 3, 30, 8)  # [L,B,H,S,E]
    twin = stored.transpose(2, 3).contiguous()
    prefix = torch.tensor([5, 0, 11, 20])
    ddtree.compact_kv(stored.transpose(2, 3), stored.clone().transpose(2, 3), acceptance(PATHS, 6), prefix)
    ddtree.compact_kv(twin, twin.clone(), acceptance(PATHS, 6), prefix)
    assert torch.equal(stored.transpose(2, 3), twin)


def test_slots_move_in_every_pool():
    generator = torch.Generator().manual_seed(0)
    pools = [torch.randn(64, 2, 4, generator=generator) for _ in range(5)]
    before = [pool.clone() for pool in pools]
    slots = torch.randperm(64, generator=generator)[:32].view(4, 8)
    ddtree.compact_slots(ddtree.PoolTable.of(pools), slots, acceptance(PATHS, 6))
    for pool, old in zip(pools, before, strict=True):
        expected = old.clone()
        for b, path in enumerate(PATHS):
            for j, node in enumerate(path):
                expected[slots[b, j]] = old[slots[b, node]]
        assert torch.equal(pool, expected)


def test_gather_takes_the_path_and_zeroes_the_rest():
    hidden = torch.randn(4, 8, 5)
    rows = ddtree.gather_rows(hidden, acceptance(PATHS, 6))
    assert rows.shape == (4, 6, 5)
    for b, path in enumerate(PATHS):
        assert torch.equal(rows[b, : len(path)], hidden[b, path])
        assert (rows[b, len(path) :] == 0).all()


def test_bad_input_is_named():
    accepted = acceptance(PATHS, 6)
    prefix = torch.zeros(4, dtype=torch.int32)
    with pytest.raises(ValueError, match=r"allowed is \[L, B, S, H, E\]"):
        ddtree.compact_kv(torch.zeros(4, 8, 2, 2), torch.zeros(4, 8, 2, 2), accepted, prefix)
    with pytest.raises(ValueError, match=r"keys has shape \[1, 3, 9, 2, 2\]"):
        ddtree.compact_kv(torch.zeros(1, 3, 9, 2, 2), torch.zeros(1, 3, 9, 2, 2), accepted, prefix)
    with pytest.raises(ValueError, match="prefix_lens has dtype"):
        ddtree.compact_kv(torch.zeros(1, 4, 9, 2, 2), torch.zeros(1, 4, 9, 2, 2), accepted, prefix.float())
    for outside in (-1, 5):
        with pytest.raises(ValueError, match=f"request 0 is {outside}: its path leaves the 9 cached rows"):
            ddtree.compact_kv(torch.zeros(1, 4, 9, 2, 2), torch.zeros(1, 4, 9, 2, 2), accepted, prefix + outside)
    with pytest.raises(ValueError, match="pool has dtype"):
        ddtree.PoolTable.of([torch.zeros(4, 2), torch.zeros(4, 2, dtype=torch.float16)])
    with pytest.raises(ValueError, match="at least one pool"):
        ddtree.PoolTable.of([])
    with pytest.raises(ValueError, match="rows of a pool must be contiguous"):
        ddtree.PoolTable.of([torch.zeros(4, 2, 3).transpose(1, 2)])
    with pytest.raises(ValueError, match="hidden has shape"):
        ddtree.gather_rows(torch.zeros(3, 8, 5), accepted)
