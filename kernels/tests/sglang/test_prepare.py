import torch

from ddtree.sglang.prepare import Block, prepare
from ddtree.sglang.trees import Candidates, Verify


def test_requests_get_their_slots_and_padding_gets_slot_zero() -> None:
    rows, block, width, mask = 4, 3, 5, 99
    drafts = Candidates.empty(rows, block - 1, 2, "cpu")
    inputs, verify = Block.empty(rows, block, "cpu"), Verify.empty(rows, width, block - 1, "cpu")
    verify.slots.fill_(7)  # of a step before, when these rows were requests
    drafts.prefix.fill_(7)
    table = torch.arange(1000, 1000 + 6 * 20, dtype=torch.int32).view(6, 20)
    last, lengths, pool_rows = torch.tensor([41, 42]), torch.tensor([4, 10]), torch.tensor([5, 2])

    prepare(last, lengths, pool_rows, table, mask, drafts, inputs, verify)

    assert drafts.roots.tolist() == [41, 42, 0, 0]
    assert drafts.prefix.tolist() == [4, 10, 1, 1]
    assert inputs.ids[:2].tolist() == [[41, mask, mask], [42, mask, mask]]
    assert inputs.positions[:2].tolist() == [[4, 5, 6], [10, 11, 12]]
    assert inputs.slots[:2].tolist() == table[[5, 2]].gather(1, torch.tensor([[4, 5, 6], [10, 11, 12]])).tolist()
    assert verify.slots[0].tolist() == table[5, 4:9].tolist()
    assert verify.slots[1].tolist() == table[2, 10:15].tolist()
    assert verify.slots[2:].eq(0).all()


def test_a_block_wider_than_the_tree_gets_all_its_slots() -> None:
    drafts = Candidates.empty(2, 6, 2, "cpu")
    inputs, verify = Block.empty(2, 7, "cpu"), Verify.empty(2, 3, 6, "cpu")
    table = torch.arange(40, dtype=torch.int32).view(2, 20)
    prepare(torch.tensor([1, 2]), torch.tensor([0, 13]), torch.tensor([1, 0]), table, 9, drafts, inputs, verify)
    assert inputs.slots.tolist() == [list(range(20, 27)), list(range(13, 20))]
    assert verify.slots.tolist() == [[20, 21, 22], [13, 14, 15]]
