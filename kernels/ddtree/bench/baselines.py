"""What users have today, called as they would call it."""

import importlib
from collections.abc import Callable
from typing import Any

import torch

import ddtree
from ddtree.bench.data import Attention
from ddtree.reference import tree as reference

STOCK = ("sglang.kernels.ops.attention.extend_attention", "sglang.srt.layers.attention.triton_ops.extend_attention")


def cpu_heap(log_probs: torch.Tensor, token_ids: torch.Tensor, roots: torch.Tensor, budget: int) -> torch.Tensor:
    """The published way: fetch the candidates, search with a heap on the host, send tokens, depths and mask back."""
    inputs = (log_probs.cpu(), token_ids.cpu(), roots.cpu())
    fields = reference.build_tree(*inputs, budget, budget + 1, False)
    tree = ddtree.Tree(**fields, draft_depth=log_probs.shape[1])
    mask = ddtree.ancestor_mask(tree).cuda()
    tree.tokens.cuda()
    tree.depths.cuda()
    return mask


def sglang_extend(case: Attention) -> Callable[[], torch.Tensor]:
    """SGLang's stock extend kernel with a custom mask. Raises ImportError where SGLang is not installed."""
    extend = _stock()
    batch, nodes, heads, size = case.query.shape
    steps = torch.arange(batch + 1, device="cuda", dtype=torch.int32)
    lengths = case.prefix_lens
    starts = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    at = [torch.arange(length, device="cuda") for length in lengths.tolist()]
    indices = torch.cat([case.table[b, a // case.page].long() * case.page + a % case.page for b, a in enumerate(at)])
    mask = torch.empty(int((nodes * (lengths.long() + nodes)).sum()), dtype=torch.uint8, device="cuda")
    ddtree.sglang_mask(case.tree, lengths, out=mask)
    sizes = nodes * (lengths.long() + nodes)
    out = torch.empty(batch * nodes, heads, size, dtype=case.query.dtype, device="cuda")
    options: dict[str, Any] = {
        "q_extend": case.query.flatten(0, 1),
        "k_extend": case.tree_keys.flatten(0, 1),
        "v_extend": case.tree_values.flatten(0, 1),
        "o_extend": out,
        "k_buffer": case.key_pool,
        "v_buffer": case.value_pool,
        "qo_indptr": steps * nodes,
        "kv_indptr": starts,
        "kv_indices": indices,
        "custom_mask": mask.view(torch.bool),
        "is_causal": True,
        "mask_indptr": torch.nn.functional.pad(sizes.cumsum(0), (1, 0)),
        "max_len_extend": nodes,
        "k_scale": 1.0,
        "v_scale": 1.0,
        "sm_scale": size**-0.5,
    }

    def run() -> torch.Tensor:
        extend(**options)
        return out.view(batch, nodes, heads, size)

    return run


def _stock() -> Callable[..., None]:
    missing = []
    for name in STOCK:
        try:
            found: Callable[..., None] = importlib.import_module(name).extend_attention_fwd
        except ModuleNotFoundError as error:
            missing.append(str(error))
        else:
            return found
    raise ImportError("; ".join(missing))


def _contiguous(case: Attention) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """(query, keys, values, mask) in torch's layout, all requests of one length; gathering is not timed."""
    prefix = int(case.prefix_lens[0])
    at = torch.arange(prefix, device="cuda")
    slots = case.table[:, at // case.page].long() * case.page + at % case.page
    keys = torch.cat([case.key_pool[slots], case.tree_keys], dim=1).transpose(1, 2).contiguous()
    values = torch.cat([case.value_pool[slots], case.tree_values], dim=1).transpose(1, 2).contiguous()
    tree = ddtree.ancestor_mask(case.tree)
    mask = torch.cat([tree.new_ones(*tree.shape[:2], prefix), tree], dim=2)[:, None]
    return case.query.transpose(1, 2).contiguous(), keys, values, mask


def sdpa(case: Attention) -> Callable[[], torch.Tensor]:
    """torch's scaled_dot_product_attention with a dense boolean mask over contiguous keys."""
    query, keys, values, mask = _contiguous(case)

    def run() -> torch.Tensor:
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(query, keys, values, attn_mask=mask, enable_gqa=True).transpose(1, 2)

    return run


def flex(case: Attention) -> Callable[[], torch.Tensor]:
    """FlexAttention, compiled, with its block mask made beforehand, over contiguous keys.

    By default torch takes its decoding kernel for fewer than 128 queries; with GQA its tile of queries x group rows
    must divide the mask's block of 128, so that 64 nodes x 4 heads find no kernel at all. Its main kernel is forced.
    """
    from torch.nn.attention.flex_attention import FlexKernelOptions, create_block_mask, flex_attention

    query, keys, values, mask = _contiguous(case)
    nodes, length = mask.shape[2:]

    def allowed(b: torch.Tensor, h: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return mask[b, 0, q, k]

    blocks = create_block_mask(allowed, query.shape[0], None, nodes, length, device="cuda")
    compiled = torch.compile(flex_attention, dynamic=False)
    main: FlexKernelOptions = {"FORCE_USE_FLEX_ATTENTION": True}

    def run() -> torch.Tensor:
        out: torch.Tensor = compiled(query, keys, values, block_mask=blocks, enable_gqa=True, kernel_options=main)
        return out.transpose(1, 2)

    return run
