"""Everything a DDTree step does between the drafter's logits and the compacted KV cache.

One signature per operation; CPU tensors run the torch reference, CUDA tensors the Triton kernels. Letters in shapes:
B batch, D draft depth, K candidates per depth, N tree nodes incl. the root, V vocabulary, L layers, H heads, E head
size.
"""

from ddtree.accept import Acceptance, accept_greedy, accept_sampled
from ddtree.attention import tree_attention
from ddtree.compact import PoolTable, compact_kv, compact_slots, gather_rows
from ddtree.mask import ancestor_mask, positions, sglang_mask
from ddtree.sample import sample_target
from ddtree.topk import TopK, check_topk, merge_topk, topk_logprobs
from ddtree.tree import Tree, build_tree, check_tree

__all__ = [
    "Acceptance",
    "PoolTable",
    "TopK",
    "Tree",
    "accept_greedy",
    "accept_sampled",
    "ancestor_mask",
    "build_tree",
    "check_topk",
    "check_tree",
    "compact_kv",
    "compact_slots",
    "gather_rows",
    "merge_topk",
    "positions",
    "sample_target",
    "sglang_mask",
    "topk_logprobs",
    "tree_attention",
]
