# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Row moves for all layers in one launch.

A program owns some columns of all rows of one request and layer. It reads every source row before it writes any, with
a barrier between, so that rows may overlap.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from ddtree.checks import require_contiguous

COLUMNS = 512  # elements of a row in a program of `move_cache`
WORD_COLUMNS = 256  # the same of `move_slots`, in words


@triton.jit
def path_of(node_index, lengths, request, WIDTH, WP: tl.constexpr):
    """(source, step, moves): rows of the path and whether they change place."""
    step = tl.arange(0, WP)
    length = tl.load(lengths + request)
    source = tl.load(node_index + request * WIDTH + step, mask=step < tl.minimum(length, WIDTH), other=-1)
    return source, step, (source >= 0) & (source != step)


@triton.jit
def move_cache(
    keys,
    values,
    node_index,
    lengths,
    prefix_lens,
    key_l,
    key_b,
    key_s,
    key_h,
    key_e,
    value_l,
    value_b,
    value_s,
    value_h,
    value_e,
    H,
    key_width,
    value_width,
    WIDTH,
    WP: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    layer, request = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    source, step, moves = path_of(node_index, lengths, request, WIDTH, WP)
    prefix = tl.load(prefix_lens + request).to(tl.int64)
    column = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    key_at = (column // key_width) * key_h + (column % key_width) * key_e
    value_at = (column // value_width) * value_h + (column % value_width) * value_e
    key_base = keys + layer * key_l + request * key_b + key_at[None, :]
    value_base = values + layer * value_l + request * value_b + value_at[None, :]
    key_mask = moves[:, None] & (column < H * key_width)[None, :]
    value_mask = moves[:, None] & (column < H * value_width)[None, :]
    key = tl.load(key_base + (prefix + source)[:, None] * key_s, mask=key_mask)
    value = tl.load(value_base + (prefix + source)[:, None] * value_s, mask=value_mask)
    tl.debug_barrier()
    tl.store(key_base + (prefix + step)[:, None] * key_s, key, mask=key_mask)
    tl.store(value_base + (prefix + step)[:, None] * value_s, value, mask=value_mask)


@triton.jit
def move_slots(
    addresses,
    like,
    slots,
    node_index,
    lengths,
    stride,
    width,
    N,
    WIDTH,
    WP: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """`like` only lends its pointer type: rows are moved as words of that size."""
    pool, request = tl.program_id(0), tl.program_id(1).to(tl.int64)
    source, step, moves = path_of(node_index, lengths, request, WIDTH, WP)
    base = tl.load(addresses + pool).to(like.dtype)
    base = tl.multiple_of(base, 16)
    column = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    mask = moves[:, None] & (column < width)[None, :]
    old = tl.load(slots + request * N + source, mask=moves, other=0).to(tl.int64)
    new = tl.load(slots + request * N + step, mask=moves, other=0).to(tl.int64)
    row = tl.load(base + old[:, None] * stride + column[None, :], mask=mask)
    tl.debug_barrier()
    tl.store(base + new[:, None] * stride + column[None, :], row, mask=mask)


@triton.jit
def gather(hidden, node_index, out, stride_b, stride_n, stride_h, H, WIDTH, COLUMNS: tl.constexpr):
    request, step = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    node = tl.load(node_index + request * WIDTH + step).to(tl.int64)
    at = hidden + request * stride_b + node * stride_n + column * stride_h
    row = tl.load(at, mask=(column < H) & (node >= 0), other=0.0)
    tl.store(out + (request * WIDTH + step) * H + column, row, mask=column < H)


def compact_kv(
    keys: torch.Tensor, values: torch.Tensor, node_index: torch.Tensor, lengths: torch.Tensor, prefix_lens: torch.Tensor
) -> None:
    """As `ddtree.compact.compact_kv`."""
    require_contiguous(node_index=node_index, lengths=lengths, prefix_lens=prefix_lens)
    layers, batch, _, heads, key_width = keys.shape
    width, value_width = node_index.shape[1], values.shape[-1]
    grid = (layers, batch, triton.cdiv(heads * max(key_width, value_width), COLUMNS))
    sizes = (heads, key_width, value_width, width)
    indices = (node_index, lengths, prefix_lens)
    move_cache[grid](
        keys,
        values,
        *indices,
        *keys.stride(),
        *values.stride(),
        *sizes,
        WP=triton.next_power_of_2(width),
        COLUMNS=COLUMNS,
        num_warps=8,
    )


WORDS = ((8, torch.int64), (4, torch.int32), (2, torch.int16), (1, torch.int8))


def compact_slots(
    pools: Sequence[torch.Tensor],
    addresses: torch.Tensor,
    slots: torch.Tensor,
    node_index: torch.Tensor,
    lengths: torch.Tensor,
) -> None:
    """As `ddtree.compact.compact_slots`. Rows are moved as the largest words that fit them."""
    require_contiguous(node_index=node_index, lengths=lengths)
    item, stride, row = pools[0].element_size(), pools[0].stride(0), pools[0][0].numel()
    size, word = next((size, word) for size, word in WORDS if row * item % size == 0 and stride * item % size == 0)
    width = node_index.shape[1]
    words, step = row * item // size, stride * item // size
    like = torch.empty(0, dtype=word, device=slots.device)
    grid = (len(pools), slots.shape[0], triton.cdiv(words, WORD_COLUMNS))
    move_slots[grid](
        addresses,
        like,
        slots.contiguous(),
        node_index,
        lengths,
        step,
        words,
        slots.shape[1],
        width,
        WP=triton.next_power_of_2(width),
        COLUMNS=WORD_COLUMNS,
        num_warps=4,
    )


def gather_rows(hidden: torch.Tensor, node_index: torch.Tensor, out: torch.Tensor) -> None:
    """As `ddtree.compact.gather_rows`."""
    require_contiguous(node_index=node_index)
    batch, width = node_index.shape
    grid = (batch, width, triton.cdiv(hidden.shape[2], 1024))
    gather[grid](hidden, node_index, out, *hidden.stride(), hidden.shape[2], width, COLUMNS=1024, num_warps=4)
