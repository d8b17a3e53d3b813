"""What users have today, called as they would call it."""

import importlib
from collections.abc import Callable
from typing import Any

import torch

import ddtree
from ddtree.bench.data import Attention

STOCK = ("sglang.kernels.ops.attention.extend_attention", "sglang.srt.layers.attention.triton_ops.extend_attention")


def cpu_heap(log_probs: torch.Tensor, token_ids: torch.Tensor, roots: torch.Tensor, budget: int) -> torch.Tensor:
    """The published way: fetch the candidates, search with a heap on the host, send tokens, depths and mask back."""
    inputs = (log_probs.cpu(), token_ids.cpu(), roots.cpu())
    tree = ddtree.build_tree(*inputs, budget, max_nodes=budget + 1)
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
