# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Top-K and log-sum-exp in one pass over the logits.

`scan` reads each logit once and keeps the maximum of every group of consecutive tokens and a partial log-sum-exp per
program. `select` takes the K groups with the best maxima: the K best tokens lie in them, because each group left out
has K better tokens before it. Only those groups are read again. Neither step sorts: the K-th largest value is found by
its bits, and what is above it is written out in the order of ids; only the K tokens are sorted.
"""

import torch
import triton
import triton.language as tl

from ddtree.checks import require
from ddtree.triton.keys import ordered, pack, unpack_id, unpack_value

MAX_K = 256
TILE = 4096
WAVES = 1024  # programs aimed at by `scan`: enough to fill any GPU, few enough to amortise a launch


@triton.jit
def scan(
    logits,
    group_max,
    part_max,
    part_sum,
    depth,
    vocab,
    groups,
    stride_b,
    stride_d,
    tiles_each,
    TILE: tl.constexpr,
    GROUP: tl.constexpr,
):
    row, part = tl.program_id(0), tl.program_id(1)
    base = logits + (row // depth).to(tl.int64) * stride_b + (row % depth).to(tl.int64) * stride_d
    lanes = tl.arange(0, TILE // GROUP)
    peak = tl.full([TILE // GROUP], float("-inf"), tl.float32)
    total = tl.zeros([TILE // GROUP], tl.float32)
    for step in tl.range(0, tiles_each, num_stages=2):
        tile = part * tiles_each + step
        columns = tile * TILE + tl.arange(0, TILE)
        x = tl.load(base + columns, mask=columns < vocab, other=float("-inf")).to(tl.float32)
        x = tl.reshape(x, [TILE // GROUP, GROUP])
        best = tl.max(x, axis=1)
        group = tile * (TILE // GROUP) + lanes
        tl.store(group_max + row.to(tl.int64) * groups + group, best, mask=group < groups)
        higher = tl.maximum(peak, best)
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(peak - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        peak = higher
    best = tl.max(peak, axis=0)
    shift = tl.where(best == float("-inf"), 0.0, best)
    at = row * tl.num_programs(1) + part
    tl.store(part_max + at, best)
    tl.store(part_sum + at, tl.sum(total * tl.exp(peak - shift), axis=0))


@triton.jit
def places_of_best(v, K: tl.constexpr, BITS: tl.constexpr):
    """(stays, place): the K greatest of v, the first ones among equals, numbered in order; v has BITS bits."""
    least = tl.full([], -(1 << (BITS - 1)), tl.int32)
    for step in range(0, BITS // 2):
        quarter = tl.full([], 1, tl.int32) << (BITS - 2 - 2 * step)
        a, b, c = least + quarter, least + 2 * quarter, least + 3 * quarter
        at_a = tl.sum((v >= a).to(tl.int32), axis=0)
        at_b = tl.sum((v >= b).to(tl.int32), axis=0)
        at_c = tl.sum((v >= c).to(tl.int32), axis=0)
        least = tl.where(at_c >= K, c, tl.where(at_b >= K, b, tl.where(at_a >= K, a, least)))
    above = v > least
    equal = v == least
    room = K - tl.sum(above.to(tl.int32), axis=0)
    # Fewer than K <= 256 are above, so that both counts fit one scan.
    own = above.to(tl.int32) + equal.to(tl.int32) * 512
    before = tl.cumsum(own, axis=0) - own
    equals = before >> 9
    return above | (equal & (equals < room)), (before & 511) + tl.minimum(equals, room)


@triton.jit
def select(
    logits,
    group_max,
    part_max,
    part_sum,
    log_probs,
    token_ids,
    lse_out,
    values,
    chosen,
    keys,
    depth,
    vocab,
    groups,
    parts,
    stride_b,
    stride_d,
    offset,
    K: tl.constexpr,
    KP: tl.constexpr,
    LOW: tl.constexpr,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
    PARTS: tl.constexpr,
):
    row = tl.program_id(0)
    part = tl.arange(0, PARTS)
    peaks = tl.load(part_max + row * parts + part, mask=part < parts, other=float("-inf"))
    sums = tl.load(part_sum + row * parts + part, mask=part < parts, other=0.0)
    peak = tl.max(peaks, axis=0)
    shift = tl.where(peak == float("-inf"), 0.0, peak)
    lse = shift + tl.log(tl.sum(sums * tl.exp(peaks - shift), axis=0))

    # The type's zero bits go, so that fewer are searched; what is padding lies below all.
    lowest: tl.constexpr = -(1 << (31 - LOW))
    group = tl.arange(0, GROUPS)
    best = tl.load(group_max + row.to(tl.int64) * groups + group, mask=group < groups, other=float("-inf"))
    stays, place = places_of_best(tl.where(group < groups, ordered(best) >> LOW, lowest), KP, 32 - LOW)
    chosen += row * KP
    tl.store(chosen + place, group, mask=stays)
    tl.debug_barrier()
    at = tl.arange(0, KP * GROUP)
    picked = tl.load(chosen + at // GROUP)
    column = picked * GROUP + at % GROUP
    inside = (picked < groups) & (column < vocab)
    base = logits + (row // depth).to(tl.int64) * stride_b + (row % depth).to(tl.int64) * stride_d
    x = tl.load(base + column, mask=inside, other=float("-inf")).to(tl.float32)
    stays, place = places_of_best(tl.where(inside, ordered(x) >> LOW, lowest), KP, 32 - LOW)
    keys += row * KP
    tl.store(keys + place, pack(x, column, inside), mask=stays)
    tl.debug_barrier()
    rank = tl.arange(0, KP)
    key = tl.sort(tl.load(keys + rank), descending=True)

    value = unpack_value(key)
    finite = (lse == lse) & (tl.abs(lse) < float("inf"))
    log_prob = tl.where(finite, value - lse, float("-inf"))
    out = row.to(tl.int64) * K + rank
    tl.store(values + out, value, mask=rank < K)
    tl.store(log_probs + out, log_prob, mask=rank < K)
    tl.store(token_ids + out, (tl.minimum(unpack_id(key), vocab - 1) + offset).to(tl.int32), mask=rank < K)
    tl.store(lse_out + row, lse)


# Zero bits at the end of the float32 form, rounded down to an even number.
LOW_BITS = {torch.bfloat16: 16, torch.float16: 12, torch.float32: 0}


def topk_logprobs(logits: torch.Tensor, k: int, vocab_offset: int) -> tuple[torch.Tensor, ...]:
    """(log_probs, token_ids, lse, logits) as in `ddtree.topk.TopK`."""
    batch, depth, vocab = logits.shape
    require(k <= MAX_K, f"k is {k}, allowed on CUDA is 1 to {MAX_K}")
    require(logits.stride(2) == 1, f"logits has stride {logits.stride(2)} along the vocabulary, allowed is 1")
    rows, places, device = batch * depth, max(2, triton.next_power_of_2(k)), logits.device
    group = 64 if k <= 128 else 32  # so that the tokens of the chosen groups fit in registers
    groups, tiles = triton.cdiv(vocab, group), triton.cdiv(vocab, TILE)
    tiles_each = max(1, min(tiles, rows * tiles // WAVES))
    parts = triton.cdiv(tiles, tiles_each)
    group_max = torch.empty(rows, groups, device=device)
    part_max, part_sum = torch.empty(2, rows, parts, device=device)
    strides = (logits.stride(0), logits.stride(1))
    scan[(rows, parts)](
        logits, group_max, part_max, part_sum, depth, vocab, groups, *strides, tiles_each, TILE=TILE, GROUP=group
    )
    log_probs, values = torch.empty(2, batch, depth, k, device=device)
    token_ids = torch.empty(batch, depth, k, dtype=torch.int32, device=device)
    lse = torch.empty(batch, depth, device=device)
    chosen = torch.empty(rows, places, dtype=torch.int32, device=device)
    keys = torch.empty(rows, places, dtype=torch.int64, device=device)
    sizes = {"GROUPS": max(triton.next_power_of_2(groups), places), "PARTS": triton.next_power_of_2(parts)}
    select[(rows,)](
        logits,
        group_max,
        part_max,
        part_sum,
        log_probs,
        token_ids,
        lse,
        values,
        chosen,
        keys,
        depth,
        vocab,
        groups,
        parts,
        *strides,
        vocab_offset,
        K=k,
        KP=places,
        LOW=LOW_BITS[logits.dtype],
        GROUP=group,
        **sizes,
        num_warps=8,
    )
    return log_probs, token_ids, lse, values
