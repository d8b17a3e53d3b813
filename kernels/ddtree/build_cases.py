"""Calls of the public functions that between them launch every kernel in the variants users meet."""

from collections.abc import Callable

import torch

import ddtree
from ddtree.dispatch import implementation


def topk(arch: int) -> None:
    """The drafter's logits: bf16 and float32, few and many candidates."""
    for dtype, k in ((torch.bfloat16, 16), (torch.float32, 16), (torch.bfloat16, 64), (torch.bfloat16, 256)):
        logits = torch.empty(1, 15, 151936, dtype=dtype)
        implementation("topk", logits.device).topk_logprobs(logits, k, 0)


def _tree(batch: int, nodes: int) -> ddtree.Tree:
    log_probs, ids = torch.empty(batch, 15, 16), torch.empty(batch, 15, 16, dtype=torch.int32)
    roots = torch.empty(batch, dtype=torch.int32)
    ddtree.build_tree(log_probs, ids, roots, nodes - 1, max_nodes=nodes, chain=True)
    return ddtree.build_tree(log_probs, ids, roots, nodes - 1, max_nodes=nodes)


def steps(arch: int) -> None:
    """Tree, masks, acceptance and row moves at three widths."""
    for nodes in (16, 64, 256):
        tree = _tree(2, nodes)
        lengths = torch.zeros(2, dtype=torch.int32)
        ddtree.ancestor_mask(tree)
        out = torch.empty(1 << 16, dtype=torch.uint8)
        for fill in (True, False):
            implementation("mask", out.device).sglang_mask(tree.ancestors, lengths, out, fill)
        accepted = ddtree.accept_greedy(tree, tree.tokens)
        ddtree.gather_rows(torch.empty(2, nodes, 4096, dtype=torch.bfloat16), accepted)
    cache = torch.empty(2, 2, 300, 8, 128, dtype=torch.bfloat16)
    ddtree.compact_kv(cache, cache, accepted, lengths)
    ddtree.compact_slots(ddtree.PoolTable.of(list(cache[:, 0])), torch.empty(2, 64, dtype=torch.int64), accepted)


def attention(arch: int) -> None:
    """Every configuration of the tuning table, with and without splits, by slots and by pages; and float16, a window,
    float32.
    """
    from ddtree.triton.device import tuning
    from ddtree.triton.schedule import Config

    tables = tuning(arch)
    parts = [tables.get(part, {}) for part in ("attention", "short", "many")]
    for size, table in (entry for part in parts for entry in part.items()):
        for values in table.values():
            for splits, page in ((1, 1), (4, 1), (4, 64)):
                _attend(int(size), torch.bfloat16, page, None, Config(**values), splits)
    for size, dtype, window in ((96, torch.bfloat16, None), (128, torch.float16, 4096), (64, torch.float32, None)):
        _attend(size, dtype, 16, window, None, 4)
    _attend(128, torch.bfloat16, 16, None, None, 4, torch.float8_e4m3fn)


def _attend(
    size: int,
    dtype: torch.dtype,
    page: int,
    window: int | None,
    config: object,
    splits: int,
    pool_dtype: torch.dtype | None = None,
) -> None:
    tree = _tree(1, 64)
    query = torch.empty(1, 64, 32, size, dtype=dtype)
    keys = torch.empty(1, 64, 8, size, dtype=dtype)
    pool, table = torch.empty(256, 8, size, dtype=pool_dtype or dtype), torch.empty(1, 8192, dtype=torch.int32)
    lengths = torch.empty(1, dtype=torch.int32)
    attend = implementation("attention", query.device).tree_attention
    longest = table.shape[-1] * page
    attend(query, keys, keys, pool, pool, table, lengths, tree, page, None, 0.1, window, longest, config, splits)


def sample(arch: int) -> None:
    """Target logits of each type; SGLang's are float32, and its cuts joint."""
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        logits = torch.empty(1, 64, 151936, dtype=dtype)
        one, top_k, uniforms = torch.ones(1), torch.ones(1, dtype=torch.int32), torch.ones(1, 64)
        joint = dtype is torch.float32
        implementation("sample", logits.device).sample_target(logits, one, top_k, one, one, uniforms, joint)


CASES: dict[str, Callable[[int], None]] = {"topk": topk, "steps": steps, "sample": sample, "attention": attention}
