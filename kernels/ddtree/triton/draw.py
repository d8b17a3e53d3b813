# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""The last pass of target sampling: the exact cut of a row, and the token that its uniform picks."""

import triton
import triton.language as tl

from ddtree.triton.keys import ordered
from ddtree.triton.shortlist import row_of, settings, whole_of


@triton.jit
def candidates(base, listed, part, i, count, vocab, compact, CAPACITY: tl.constexpr, TILE: tl.constexpr):
    """(token, logit, inside) of the i-th listed tokens of parts, or of all tokens where nothing is listed."""
    inside = i < count
    local = tl.load(listed + part * CAPACITY + i, mask=inside & compact, other=0).to(tl.int32)
    token = part * TILE + tl.where(compact, local, i)
    inside = inside & (token < vocab)
    return token, tl.load(base + token, mask=inside, other=float("-inf")).to(tl.float32), inside


@triton.jit
def weigh(x, inside, best, scale, cut, least_weight):
    weight = tl.exp2((x - best) * scale)
    return tl.where(inside & (x >= cut) & (weight >= least_weight), weight, 0.0)


@triton.jit
def weight_of_parts(
    base,
    listed,
    count,
    most,
    vocab,
    compact,
    best,
    scale,
    cut,
    least_weight,
    PARTS: tl.constexpr,
    CHUNK: tl.constexpr,
    CAPACITY: tl.constexpr,
    TILE: tl.constexpr,
):
    part = tl.arange(0, PARTS)[:, None]
    total = tl.zeros([PARTS], tl.float32)
    for start in tl.range(0, most, CHUNK):
        i = start + tl.arange(0, CHUNK)[None, :]
        _, x, inside = candidates(base, listed, part, i, count[:, None], vocab, compact, CAPACITY, TILE)
        total += tl.sum(weigh(x, inside, best, scale, cut, least_weight), axis=1)
    return total


@triton.jit
def search(
    base,
    listed,
    count,
    most,
    vocab,
    compact,
    best,
    scale,
    cut,
    goal,
    COUNT: tl.constexpr,
    LOW: tl.constexpr,
    PARTS: tl.constexpr,
    CHUNK: tl.constexpr,
    CAPACITY: tl.constexpr,
    TILE: tl.constexpr,
):
    """Greatest logit at or above which lies at least `goal`; its bits below LOW are zero in the stored type."""
    part = tl.arange(0, PARTS)[:, None]
    least = tl.full([], -(2**31), tl.int32)
    for step in range(0, (32 - LOW) // 2):
        quarter = tl.full([], 1, tl.int32) << (30 - 2 * step)
        a, b, c = least + quarter, least + 2 * quarter, least + 3 * quarter
        at_a = tl.zeros([PARTS, CHUNK], tl.float32)
        at_b = tl.zeros([PARTS, CHUNK], tl.float32)
        at_c = tl.zeros([PARTS, CHUNK], tl.float32)
        for start in tl.range(0, most, CHUNK):
            i = start + tl.arange(0, CHUNK)[None, :]
            _, x, inside = candidates(base, listed, part, i, count[:, None], vocab, compact, CAPACITY, TILE)
            amount = inside.to(tl.float32) if COUNT else weigh(x, inside, best, scale, cut, 0.0)
            bits = ordered(x)
            at_a += tl.where(bits >= a, amount, 0.0)
            at_b += tl.where(bits >= b, amount, 0.0)
            at_c += tl.where(bits >= c, amount, 0.0)
        enough_a = tl.sum(tl.sum(at_a, axis=1), axis=0) >= goal
        enough_b = tl.sum(tl.sum(at_b, axis=1), axis=0) >= goal
        enough_c = tl.sum(tl.sum(at_c, axis=1), axis=0) >= goal
        least = tl.where(enough_c, c, tl.where(enough_b, b, tl.where(enough_a, a, least)))
    bits = least ^ ((least >> 31) & 0x7FFFFFFF)
    # A negative logit has the complement of its bits, so that the unsearched ones are set.
    return tl.where(least < 0, bits & -(1 << LOW), bits).to(tl.float32, bitcast=True)


@triton.jit
def draw(
    logits,
    part_max,
    part_id,
    part_sum,
    listed,
    counts,
    temperature,
    top_k,
    top_p,
    min_p,
    uniforms,
    out,
    nodes,
    vocab,
    parts,
    stride_b,
    stride_n,
    PARTS: tl.constexpr,
    CHUNK: tl.constexpr,
    LOW: tl.constexpr,
    CAPACITY: tl.constexpr,
    TILE: tl.constexpr,
    JOINT: tl.constexpr,
):
    row = tl.program_id(0)
    request = row // nodes
    part = tl.arange(0, PARTS)
    best = tl.load(part_max + row * parts + part, mask=part < parts, other=float("-inf"))
    ids = tl.load(part_id + row * parts + part, mask=part < parts, other=vocab)
    peak = tl.max(best, axis=0)
    result = tl.minimum(tl.min(tl.where(best == peak, ids, vocab), axis=0), vocab - 1)
    if (tl.load(temperature + request) > 0) & (tl.abs(peak) < float("inf")):
        base = row_of(logits, row, nodes, stride_b, stride_n)
        scale, k, p = settings(temperature, top_k, top_p, request, vocab)
        least_weight = tl.load(min_p + request)
        cut = tl.full([], float("-inf"), tl.float32)
        _, weights = whole_of(part_max, part_sum, scale, row, parts, PARTS)
        whole = tl.sum(weights, axis=0)
        listed += row.to(tl.int64) * parts * CAPACITY
        compact = (k > 0) | (p < 1) | (least_weight > 0)
        count = tl.where(part < parts, TILE, 0)
        if compact:
            found = tl.load(counts + row * parts + part, mask=part < parts, other=0)
            compact = tl.max(found, axis=0) <= CAPACITY
            count = tl.where(compact, found, count)
            most = tl.max(count, axis=0)
            if k > 0:
                goal = k.to(tl.float32)
                cut = search(
                    base,
                    listed,
                    count,
                    most,
                    vocab,
                    compact,
                    peak,
                    scale,
                    cut,
                    goal,
                    True,
                    LOW,
                    PARTS,
                    CHUNK,
                    CAPACITY,
                    TILE,
                )
                weights = weight_of_parts(
                    base, listed, count, most, vocab, compact, peak, scale, cut, 0.0, PARTS, CHUNK, CAPACITY, TILE
                )
            left = tl.sum(weights, axis=0)
            goal = p * (whole if JOINT else left)
            # Where top-k left less than that, top-p cuts nothing; the margin is for sums in another order.
            if (p < 1) & (left > goal * 1.00001):
                nucleus = search(
                    base,
                    listed,
                    count,
                    most,
                    vocab,
                    compact,
                    peak,
                    scale,
                    cut,
                    goal,
                    False,
                    LOW,
                    PARTS,
                    CHUNK,
                    CAPACITY,
                    TILE,
                )
                cut = tl.maximum(cut, nucleus)
            weights = weight_of_parts(
                base, listed, count, most, vocab, compact, peak, scale, cut, least_weight, PARTS, CHUNK, CAPACITY, TILE
            )
        # The first part, then the first token in it, at which the cumulative weight exceeds uniform * total; the last
        # one with weight, in case rounding keeps the goal from being passed.
        goal = tl.load(uniforms + row) * tl.sum(weights, axis=0)
        before = tl.cumsum(weights, axis=0)
        passed = tl.min(tl.where((before > goal) & (weights > 0), part, PARTS), axis=0)
        chosen = tl.minimum(passed, tl.max(tl.where(weights > 0, part, 0), axis=0))
        goal -= tl.sum(tl.where(part < chosen, weights, 0.0), axis=0)
        size = tl.sum(tl.where(part == chosen, count, 0), axis=0)
        i = tl.arange(0, TILE)
        token, x, inside = candidates(base, listed, chosen, i, size, vocab, compact, CAPACITY, TILE)
        weight = weigh(x, inside, peak, scale, cut, least_weight)
        over = (tl.cumsum(weight, axis=0) > goal) & (weight > 0)
        last = tl.max(tl.where(weight > 0, token, 0), axis=0)
        result = tl.minimum(tl.min(tl.where(over, token, vocab), axis=0), last)
    tl.store(out + row, result)
