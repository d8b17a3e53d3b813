# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Dense masks from the ancestor words, one program per node."""

import torch
import triton
import triton.language as tl

from ddtree.checks import require_contiguous


@triton.jit
def bits_of(ancestors, row, columns, N, WORDS: tl.constexpr):
    word = tl.load(ancestors + row * WORDS + columns // 64, mask=columns < N, other=0)
    return (word >> (columns % 64).to(tl.int64)) & 1


@triton.jit
def dense(ancestors, out, N, WORDS: tl.constexpr, NP: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * N + tl.program_id(1)
    columns = tl.arange(0, NP)
    bits = bits_of(ancestors, row, columns, N, WORDS)
    tl.store(out + row * N + columns, bits.to(tl.int8), mask=columns < N)


@triton.jit
def ragged(
    ancestors, prefix_lens, out, size, N, FILL: tl.constexpr, WORDS: tl.constexpr, NP: tl.constexpr, BP: tl.constexpr
):
    request, node = tl.program_id(0), tl.program_id(1)
    others = tl.arange(0, BP)
    before = tl.load(prefix_lens + others, mask=others < request, other=0).to(tl.int64)
    start = N * (tl.sum(before, axis=0) + request.to(tl.int64) * N)
    prefix = tl.load(prefix_lens + request).to(tl.int64)
    line = start + node * (prefix + N)
    if FILL:
        for column in range(0, prefix, 1024):
            columns = column + tl.arange(0, 1024)
            at = line + columns
            tl.store(out + at, tl.full([1024], 1, tl.uint8), mask=(columns < prefix) & (at >= 0) & (at < size))
    columns = tl.arange(0, NP)
    bits = bits_of(ancestors, request.to(tl.int64) * N + node, columns, N, WORDS)
    at = line + prefix + columns
    tl.store(out + at, bits.to(tl.uint8), mask=(columns < N) & (at >= 0) & (at < size))


def ancestor_mask(ancestors: torch.Tensor) -> torch.Tensor:
    """bool [B,N,N] from int64 words [B,N,W]."""
    require_contiguous(ancestors=ancestors)
    batch, nodes, words = ancestors.shape
    out = torch.empty(batch, nodes, nodes, dtype=torch.bool, device=ancestors.device)
    dense[(batch, nodes)](
        ancestors, out.view(torch.int8), nodes, WORDS=words, NP=triton.next_power_of_2(nodes), num_warps=1
    )
    return out


def sglang_mask(ancestors: torch.Tensor, prefix_lens: torch.Tensor, out: torch.Tensor, fill_prefix: bool) -> None:
    """Write each request's [N, prefix + N] block into `out`, nothing past its end."""
    require_contiguous(ancestors=ancestors, prefix_lens=prefix_lens, out=out)
    batch, nodes, words = ancestors.shape
    sizes = {"NP": triton.next_power_of_2(nodes), "BP": triton.next_power_of_2(batch)}
    tensors = (ancestors, prefix_lens, out)
    ragged[(batch, nodes)](*tensors, out.numel(), nodes, FILL=fill_prefix, WORDS=words, **sizes, num_warps=4)
