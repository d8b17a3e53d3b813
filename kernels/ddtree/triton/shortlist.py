# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""The two passes of target sampling over the logits: what each part of a row holds, and which tokens a cut may keep.

A level is a whole power of two of the weight exp(logit / temperature), so that the levels of different parts are the
same thresholds and their numbers or weights add up.
"""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def row_of(logits, row, nodes, stride_b, stride_n):
    return logits + (row // nodes).to(tl.int64) * stride_b + (row % nodes).to(tl.int64) * stride_n


@triton.jit
def settings(temperature, top_k, top_p, request, vocab):
    """(log2 weight per logit, tokens that top-k keeps or 0, share that top-p keeps)."""
    k = tl.load(top_k + request).to(tl.int32)
    return LOG2E / tl.load(temperature + request), tl.where(k < vocab, tl.maximum(k, 0), 0), tl.load(top_p + request)


@triton.jit
def survey(
    logits,
    part_max,
    part_id,
    part_sum,
    ladder,
    temperature,
    top_k,
    top_p,
    nodes,
    vocab,
    stride_b,
    stride_n,
    LEVELS: tl.constexpr,
    TILE: tl.constexpr,
):
    row, part = tl.program_id(0), tl.program_id(1)
    request = row // nodes
    column = part * TILE + tl.arange(0, TILE)
    inside = column < vocab
    x = tl.load(row_of(logits, row, nodes, stride_b, stride_n) + column, mask=inside, other=float("-inf"))
    x = x.to(tl.float32)
    best, at = tl.max(x, axis=0, return_indices=True)
    where = row * tl.num_programs(1) + part
    tl.store(part_max + where, best)
    tl.store(part_id + where, part * TILE + at)
    if tl.load(temperature + request) > 0:
        scale, k, p = settings(temperature, top_k, top_p, request, vocab)
        weight = tl.where(inside & (x > float("-inf")), tl.exp2((x - best) * scale), 0.0)
        tl.store(part_sum + where, tl.sum(weight, axis=0))
        if (k > 0) | (p < 1):
            amount = tl.where(k > 0, inside.to(tl.float32), weight)
            top = tl.floor(best * scale)
            for level in tl.static_range(LEVELS):
                reached = tl.sum(tl.where(x * scale >= top - level, amount, 0.0), axis=0)
                tl.store(ladder + where * LEVELS + level, reached)


@triton.jit
def floor_of(part_max, ladder, total, peak, scale, k, p, row, parts, PARTS: tl.constexpr, LEVELS: tl.constexpr):
    """Scaled logit that the cut is not below: the best level at which there is enough, else -inf."""
    part, step = tl.arange(0, PARTS), tl.arange(0, 16)
    best = tl.load(part_max + row * parts + part, mask=part < parts, other=float("-inf"))
    top = tl.floor(peak * scale)
    # How far the part's first level lies below the row's; a part without logits has no level.
    behind = tl.minimum(top - tl.floor(best * scale), 1e6).to(tl.int32)
    level = step[None, :] - behind[:, None]
    known = (part < parts)[:, None] & (level >= 0)
    at = (row * parts + part)[:, None] * LEVELS + tl.minimum(tl.maximum(level, 0), LEVELS - 1)
    amount = tl.load(ladder + at, mask=known, other=0.0)
    amount = tl.where(k > 0, amount, amount * tl.exp2((best - peak) * scale)[:, None])
    reached = tl.sum(tl.where(known, amount, 0.0), axis=0)
    # The margin covers the rounding of sums that are taken in another order later.
    goal = tl.where(k > 0, k.to(tl.float32), p * total * 1.0001)
    first = tl.min(tl.where(reached >= goal, step, 16), axis=0)
    return tl.where(first < 16, top - first, float("-inf"))


@triton.jit
def whole_of(part_max, part_sum, scale, row, parts, PARTS: tl.constexpr):
    """(best logit, weight of each part relative to it)."""
    part = tl.arange(0, PARTS)
    best = tl.load(part_max + row * parts + part, mask=part < parts, other=float("-inf"))
    peak = tl.max(best, axis=0)
    weight = tl.load(part_sum + row * parts + part, mask=part < parts, other=0.0)
    return peak, tl.where(best > float("-inf"), weight * tl.exp2((best - peak) * scale), 0.0)


@triton.jit
def collect(
    logits,
    part_max,
    part_sum,
    ladder,
    listed,
    counts,
    temperature,
    top_k,
    top_p,
    min_p,
    nodes,
    vocab,
    stride_b,
    stride_n,
    PARTS: tl.constexpr,
    LEVELS: tl.constexpr,
    CAPACITY: tl.constexpr,
    STRIP: tl.constexpr,
    TILE: tl.constexpr,
):
    row, part = tl.program_id(0), tl.program_id(1)
    request, parts = row // nodes, tl.num_programs(1)
    if tl.load(temperature + request) > 0:
        scale, k, p = settings(temperature, top_k, top_p, request, vocab)
        least_weight = tl.load(min_p + request)
        if (k > 0) | (p < 1) | (least_weight > 0):
            peak, weights = whole_of(part_max, part_sum, scale, row, parts, PARTS)
            level = tl.full([], float("-inf"), tl.float32)
            if (k > 0) | (p < 1):
                total = tl.sum(weights, axis=0)
                level = floor_of(part_max, ladder, total, peak, scale, k, p, row, parts, PARTS, LEVELS)
                least_weight = 0.0
            base = row_of(logits, row, nodes, stride_b, stride_n) + part * TILE
            where = row.to(tl.int64) * parts + part
            found = 0
            for start in tl.range(0, TILE, STRIP):
                local = start + tl.arange(0, STRIP)
                inside = local < vocab - part * TILE
                x = tl.load(base + local, mask=inside, other=0.0).to(tl.float32)
                stays = inside & (x * scale >= level) & (tl.exp2((x - peak) * scale) >= least_weight)
                place = found + tl.cumsum(stays.to(tl.int32), axis=0) - 1
                at = listed + where * CAPACITY + place
                tl.store(at, local.to(tl.int16), mask=stays & (place < CAPACITY))
                found += tl.sum(stays.to(tl.int32), axis=0)
            tl.store(counts + where, found)
