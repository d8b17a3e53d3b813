"""Masks unpacked from the ancestor words."""

import torch


def ancestor_mask(ancestors: torch.Tensor) -> torch.Tensor:
    """bool [B,N,N] from int64 words [B,N,W]."""
    nodes = ancestors.shape[1]
    columns = torch.arange(nodes, device=ancestors.device)
    bits = ancestors[:, :, columns // 64] >> (columns % 64) & 1
    return bits.bool()


def sglang_mask(ancestors: torch.Tensor, prefix_lens: torch.Tensor, out: torch.Tensor, fill_prefix: bool) -> None:
    """Write each request's [N, prefix + N] block into `out`."""
    nodes, start = ancestors.shape[1], 0
    mask = ancestor_mask(ancestors).to(torch.uint8)
    for request, prefix in enumerate(prefix_lens.tolist()):
        stop = start + nodes * (prefix + nodes)
        block = out[start:stop].view(nodes, prefix + nodes)
        if fill_prefix:
            block[:, :prefix] = 1
        block[:, prefix:] = mask[request]
        start = stop
