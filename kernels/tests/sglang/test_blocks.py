import pytest
import torch

from ddtree.mask import ancestor_mask
from ddtree.sglang.blocks import ancestor_bits, block_tree


@pytest.mark.parametrize("block", [2, 16, 64, 65, 200])
def test_a_block_sees_all_of_itself_and_a_causal_one_what_came_before(block: int) -> None:
    everything = torch.ones(block, block, dtype=torch.bool)
    for causal, expected in ((False, everything), (True, everything.tril())):
        tree = block_tree(3, block, causal, "cpu")
        assert torch.equal(ancestor_mask(tree), expected.expand(3, -1, -1))
        assert tree.depths[1].tolist() == list(range(block))


def test_bit_63_is_the_sign() -> None:
    seen = torch.zeros(64, 64, dtype=torch.bool)
    seen[0, 63] = True
    assert ancestor_bits(seen)[0].tolist() == [-(2**63)]
