# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Target samples without sorting: cuts are found by searching the bits of the smallest logit that stays.

`peaks` finds the best logit of every part of a row. `draw` has one program per row: temperature 0 returns the best
token, else each cut is the greatest logit at or above which enough tokens (top-k) or enough weight (top-p) lie, found
two bits a pass, and the uniform is inverted over tiles, then within one tile. Rows stay in the L2 cache between
passes.
"""

import torch
import triton
import triton.language as tl

from ddtree.checks import require
from ddtree.triton.keys import ordered

TILE = 4096
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def peaks(logits, part_max, part_id, nodes, vocab, stride_b, stride_n, TILE: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    base = logits + (row // nodes).to(tl.int64) * stride_b + (row % nodes).to(tl.int64) * stride_n
    column = part * TILE + tl.arange(0, TILE)
    x = tl.load(base + column, mask=column < vocab, other=float("-inf")).to(tl.float32)
    best, at = tl.max(x, axis=0, return_indices=True)
    tl.store(part_max + row * tl.num_programs(1) + part, best)
    tl.store(part_id + row * tl.num_programs(1) + part, part * TILE + at)


@triton.jit
def weigh(base, column, vocab, best, heat, cut):
    """(logits, weights): exp((x - best) / heat) where x >= cut, else 0."""
    x = tl.load(base + column, mask=column < vocab, other=float("-inf")).to(tl.float32)
    weight = tl.exp2((x - best) * heat)
    return x, tl.where((x >= cut) & (column < vocab), weight, 0.0)


@triton.jit
def mass_above(base, vocab, best, heat, cut, a, b, c, COUNT: tl.constexpr, TILE: tl.constexpr):
    """Weight, or number, of the tokens that stay and whose ordered bits are at least a, b and c."""
    at_a = tl.zeros([TILE], tl.float32)
    at_b = tl.zeros([TILE], tl.float32)
    at_c = tl.zeros([TILE], tl.float32)
    for start in tl.range(0, vocab, TILE):
        column = start + tl.arange(0, TILE)
        x, weight = weigh(base, column, vocab, best, heat, cut)
        if COUNT:
            weight = (column < vocab).to(tl.float32)
        bits = ordered(x)
        at_a += tl.where(bits >= a, weight, 0.0)
        at_b += tl.where(bits >= b, weight, 0.0)
        at_c += tl.where(bits >= c, weight, 0.0)
    return tl.sum(at_a, axis=0), tl.sum(at_b, axis=0), tl.sum(at_c, axis=0)


@triton.jit
def search(base, vocab, best, heat, cut, goal, COUNT: tl.constexpr, LOW: tl.constexpr, TILE: tl.constexpr):
    """Greatest logit at or above which lies at least `goal`; its bits below LOW are zero in the stored type."""
    least = tl.full([], -(2**31), tl.int32)
    for step in range(0, (32 - LOW) // 2):
        quarter = tl.full([], 1, tl.int32) << (30 - 2 * step)
        a, b, c = least + quarter, least + 2 * quarter, least + 3 * quarter
        at_a, at_b, at_c = mass_above(base, vocab, best, heat, cut, a, b, c, COUNT, TILE)
        least = tl.where(at_c >= goal, c, tl.where(at_b >= goal, b, tl.where(at_a >= goal, a, least)))
    bits = least ^ ((least >> 31) & 0x7FFFFFFF)
    # A negative logit has the complement of its bits, so that the unsearched ones are set.
    return tl.where(least < 0, bits & -(1 << LOW), bits).to(tl.float32, bitcast=True)


@triton.jit
def total_of(base, vocab, best, heat, cut, least_weight, TILE: tl.constexpr):
    total = 0.0
    for start in tl.range(0, vocab, TILE):
        _, weight = weigh(base, start + tl.arange(0, TILE), vocab, best, heat, cut)
        total += tl.sum(tl.where(weight >= least_weight, weight, 0.0), axis=0)
    return total


@triton.jit
def invert(base, vocab, best, heat, cut, least_weight, uniform, TILE: tl.constexpr):
    """First token at which the cumulative weight exceeds uniform * total."""
    goal = uniform * total_of(base, vocab, best, heat, cut, least_weight, TILE)
    before = 0.0
    found = 0
    short = 0.0
    searching = tl.full([], 1, tl.int32)
    for start in tl.range(0, vocab, TILE):
        _, weight = weigh(base, start + tl.arange(0, TILE), vocab, best, heat, cut)
        here = tl.sum(tl.where(weight >= least_weight, weight, 0.0), axis=0)
        # While the goal is not passed, remember the last tile with weight, in case rounding keeps it from being passed.
        take = (searching > 0) & (here > 0)
        found = tl.where(take, start, found)
        short = tl.where(take, goal - before, short)
        before += here
        searching = tl.where(before > goal, 0, searching)
    column = found + tl.arange(0, TILE)
    _, weight = weigh(base, column, vocab, best, heat, cut)
    weight = tl.where(weight >= least_weight, weight, 0.0)
    passed = (tl.cumsum(weight, axis=0) > short) & (weight > 0)
    last = tl.max(tl.where(weight > 0, column, 0), axis=0)
    return tl.minimum(tl.min(tl.where(passed, column, vocab), axis=0), last)


@triton.jit
def draw(
    logits,
    part_max,
    part_id,
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
    LOW: tl.constexpr,
    TILE: tl.constexpr,
):
    row = tl.program_id(0)
    request = row // nodes
    part = tl.arange(0, PARTS)
    best = tl.load(part_max + row * parts + part, mask=part < parts, other=float("-inf"))
    ids = tl.load(part_id + row * parts + part, mask=part < parts, other=vocab)
    peak = tl.max(best, axis=0)
    token = tl.minimum(tl.min(tl.where(best == peak, ids, vocab), axis=0), vocab - 1)
    heat = tl.load(temperature + request)
    if (heat > 0) & (tl.abs(peak) < float("inf")):
        base = logits + request.to(tl.int64) * stride_b + (row % nodes).to(tl.int64) * stride_n
        scale = LOG2E / heat
        cut = tl.full([], float("-inf"), tl.float32)
        k = tl.load(top_k + request).to(tl.int32)
        if (k > 0) & (k < vocab):
            cut = search(base, vocab, peak, scale, cut, k.to(tl.float32), True, LOW, TILE)
        p = tl.load(top_p + request)
        if p < 1:
            goal = p * total_of(base, vocab, peak, scale, cut, 0.0, TILE)
            cut = tl.maximum(cut, search(base, vocab, peak, scale, cut, goal, False, LOW, TILE))
        least_weight = tl.load(min_p + request)
        token = invert(base, vocab, peak, scale, cut, least_weight, tl.load(uniforms + row), TILE)
    tl.store(out + row, token)


# Zero bits at the end of the float32 form, rounded down to an even number.
LOW_BITS = {torch.bfloat16: 16, torch.float16: 12, torch.float32: 0}


def sample_target(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    uniforms: torch.Tensor,
) -> torch.Tensor:
    """int32 [B,N], as `ddtree.sample.sample_target`. A row with NaN or +inf gives some token of the vocabulary."""
    batch, nodes, vocab = logits.shape
    require(logits.stride(2) == 1, f"logits has stride {logits.stride(2)} along the vocabulary, allowed is 1")
    tile, rows, device = min(TILE, triton.next_power_of_2(vocab)), batch * nodes, logits.device
    parts = triton.cdiv(vocab, tile)
    part_max = torch.empty(rows, parts, device=device)
    part_id = torch.empty(rows, parts, dtype=torch.int32, device=device)
    strides = (logits.stride(0), logits.stride(1))
    peaks[(rows, parts)](logits, part_max, part_id, nodes, vocab, *strides, TILE=tile, num_warps=4)
    out = torch.empty(batch, nodes, dtype=torch.int32, device=device)
    draw[(rows,)](
        logits,
        part_max,
        part_id,
        temperature,
        top_k,
        top_p,
        min_p,
        uniforms.contiguous(),
        out,
        nodes,
        vocab,
        parts,
        *strides,
        PARTS=triton.next_power_of_2(parts),
        LOW=LOW_BITS[logits.dtype],
        TILE=tile,
        num_warps=8,
    )
    return out
