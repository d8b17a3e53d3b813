# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""The kernels of tree attention: all query heads of a KV head and all nodes are the rows of one matrix.

The work of one KV head of one request is a line of tiles, first the prefix in steps of BLOCK_N with no mask, then the
tree's own keys in steps of TAIL under the ancestor bits. The line is cut into `splits` equal parts so that few
requests fill the GPU too; the parts' results are merged by their log-sum-exp.
"""

import triton
import triton.language as tl


@triton.jit
def absorb(q, k, v, seen, peak, total, acc, scale, MASKED: tl.constexpr, PRECISION: tl.constexpr):
    """One tile of keys into the running softmax; `peak` is in units of scaled log2."""
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
    if MASKED:
        scores = tl.where(seen, scores, float("-inf"))
    higher = tl.maximum(peak, tl.max(scores, axis=1) * scale)
    shift = higher
    if MASKED:
        shift = tl.where(higher == float("-inf"), 0.0, higher)
    weights = tl.exp2(scores * scale - shift[:, None])
    decay = tl.exp2(peak - shift)
    total = total * decay + tl.sum(weights, axis=1)
    acc = acc * decay[:, None]
    acc = tl.dot(weights.to(v.dtype), v, acc, input_precision=PRECISION)
    return higher, total, acc


@triton.jit
def slots_of(
    line, start, column, prefix, PAGE: tl.constexpr, BLOCK_N: tl.constexpr, WIDE: tl.constexpr, MASKED: tl.constexpr
):
    """Slots of positions start + column, in int64 if WIDE; one table entry where a tile lies within a page."""
    kind: tl.constexpr = tl.int64 if WIDE else tl.int32
    if PAGE % BLOCK_N == 0:
        page = tl.load(line + start // PAGE).to(kind)
        return page * PAGE + (start % PAGE) + column
    at = start + column
    if MASKED:
        page = tl.load(line + at // PAGE, mask=at < prefix, other=0).to(kind)
    else:
        page = tl.load(line + at // PAGE).to(kind)
    return page * PAGE + at % PAGE


@triton.jit
def load_rows(base, rows, stride, inside, element, E: tl.constexpr, EP: tl.constexpr, MASKED: tl.constexpr):
    where = base + rows[:, None] * stride + element[None, :]
    if MASKED:
        return tl.load(where, mask=inside[:, None] & (element < E)[None, :], other=0.0)
    if E == EP:
        return tl.load(where)
    return tl.load(where, mask=(element < E)[None, :], other=0.0)


@triton.jit
def attend(
    query,
    tree_keys,
    tree_values,
    key_pool,
    value_pool,
    table,
    rows,
    prefix_lens,
    words,
    depths,
    out,
    part_lse,
    q_b,
    q_n,
    q_h,
    tk_b,
    tk_n,
    tk_h,
    tv_b,
    tv_n,
    tv_h,
    k_s,
    k_h,
    v_s,
    v_h,
    t_r,
    N,
    scale,
    window,
    splits,
    W32,
    HKV: tl.constexpr,
    GROUP: tl.constexpr,
    E: tl.constexpr,
    EP: tl.constexpr,
    PAGE: tl.constexpr,
    SINGLE: tl.constexpr,
    ROWS: tl.constexpr,
    WINDOW: tl.constexpr,
    WIDE: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    TAIL: tl.constexpr,
):
    block, pair, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    request = (pair // HKV).to(tl.int64)
    head = pair % HKV
    prefix = tl.load(prefix_lens + request).to(tl.int32)
    line_row = request
    if ROWS:
        line_row = tl.load(rows + request).to(tl.int64)
    line = table + line_row * t_r

    row = block * BLOCK_M + tl.arange(0, BLOCK_M)
    real = row < N * GROUP
    node = tl.minimum(row // GROUP, N - 1)
    element = tl.arange(0, EP)
    at = (node * q_n + (head * GROUP + row % GROUP) * q_h)[:, None] + element[None, :]
    q = tl.load(query + request * q_b + at, mask=real[:, None] & (element < E)[None, :], other=0.0)
    if WINDOW:
        depth = tl.load(depths + request * N + node)

    lower = 0
    if WINDOW:
        lower = tl.maximum(prefix - window + 1, 0) // BLOCK_N * BLOCK_N
    prefix_tiles = tl.cdiv(prefix - lower, BLOCK_N)
    tail_tiles = tl.cdiv(N, TAIL)
    each = tl.cdiv(prefix_tiles + tail_tiles, splits)
    first = split * each
    last = tl.minimum(first + each, prefix_tiles + tail_tiles)

    peak = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, EP], tl.float32)
    column = tl.arange(0, BLOCK_N)
    keys = key_pool + head * k_h
    values = value_pool + head * v_h
    begin = lower + first * BLOCK_N
    end = tl.minimum(lower + last * BLOCK_N, prefix)
    whole = begin
    if not WINDOW:
        whole = begin + tl.maximum(end - begin, 0) // BLOCK_N * BLOCK_N
        for start in tl.range(begin, whole, BLOCK_N, num_stages=STAGES):
            slots = slots_of(line, start, column, prefix, PAGE, BLOCK_N, WIDE, False)
            k = load_rows(keys, slots, k_s, column, element, E, EP, False).to(q.dtype)
            v = load_rows(values, slots, v_s, column, element, E, EP, False).to(q.dtype)
            peak, total, acc = absorb(q, k, v, real, peak, total, acc, scale, False, PRECISION)
    for start in tl.range(whole, end, BLOCK_N, num_stages=1):
        slots = slots_of(line, start, column, prefix, PAGE, BLOCK_N, WIDE, True)
        inside = start + column < prefix
        k = load_rows(keys, slots, k_s, inside, element, E, EP, True).to(q.dtype)
        v = load_rows(values, slots, v_s, inside, element, E, EP, True).to(q.dtype)
        seen = inside[None, :]
        if WINDOW:
            seen = seen & ((start + column)[None, :] > (prefix + depth - window)[:, None])
        peak, total, acc = absorb(q, k, v, seen, peak, total, acc, scale, True, PRECISION)

    # The sign of a length is 0: what is computed anew takes no registers in the loops above.
    row = (block + (prefix >> 31)) * BLOCK_M + tl.arange(0, BLOCK_M)
    pair += prefix >> 31
    request = (pair // HKV).to(tl.int64)
    head = pair % HKV
    real = row < N * GROUP
    node = tl.minimum(row // GROUP, N - 1)
    column = tl.arange(0, TAIL)
    keys = tree_keys + request * tk_b + head * tk_h
    values = tree_values + request * tv_b + head * tv_h
    words += request * N * W32
    for tile in tl.range(tl.maximum(first - prefix_tiles, 0), tl.maximum(last - prefix_tiles, 0), num_stages=1):
        other = tile * TAIL + column
        inside = other < N
        k = load_rows(keys, other, tk_n, inside, element, E, EP, True)
        v = load_rows(values, other, tv_n, inside, element, E, EP, True)
        seen = ((tl.load(words + node * W32 + tile)[:, None] >> column[None, :]) & 1) != 0
        if WINDOW:
            theirs = tl.load(depths + request * N + other, mask=inside, other=0)
            seen = seen & (depth[:, None] - theirs[None, :] < window)
        peak, total, acc = absorb(q, k, v, seen, peak, total, acc, scale, True, PRECISION)

    # Bases are scalars in 64 bits and offsets have 32: addresses of a whole tile in 64 bits would spill.
    if SINGLE:
        base = out + (request * N * (HKV * GROUP) + head * GROUP) * E
        where = (node * (HKV * GROUP) + row % GROUP)[:, None] * E + element[None, :]
        result = (acc * (1.0 / total)[:, None]).to(out.dtype.element_ty)
        tl.store(base + where, result, mask=real[:, None] & (element < E)[None, :])
    else:
        part = (pair.to(tl.int64) * splits + split) * (N * GROUP)
        some = real & (total > 0)
        lse = tl.where(some, peak + tl.log2(tl.where(some, total, 1.0)), float("-inf"))
        tl.store(part_lse + part + row, lse, mask=real)
        result = acc / tl.where(some, total, 1.0)[:, None]
        where = row[:, None] * E + element[None, :]
        tl.store(out + part * E + where, result, mask=some[:, None] & (element < E)[None, :])


@triton.jit
def merge(
    parts,
    part_lse,
    out,
    N,
    splits,
    HKV: tl.constexpr,
    GROUP: tl.constexpr,
    E: tl.constexpr,
    EP: tl.constexpr,
    SP: tl.constexpr,
):
    pair, row = tl.program_id(0).to(tl.int64), tl.program_id(1)
    split, element = tl.arange(0, SP), tl.arange(0, EP)
    at = (pair * splits + split) * (N * GROUP) + row
    lse = tl.load(part_lse + at, mask=split < splits, other=float("-inf"))
    inside = (split < splits)[:, None] & (element < E)[None, :]
    part = tl.load(parts + at[:, None] * E + element[None, :], mask=inside, other=0.0)
    weight = tl.exp2(lse - tl.max(lse, axis=0))
    # A part that saw no key was not written.
    part = tl.where((weight > 0)[:, None], part * weight[:, None], 0.0)
    result = tl.sum(part, axis=0) / tl.sum(weight, axis=0)
    request, head = pair // HKV, pair % HKV
    where = ((request * N + row // GROUP) * (HKV * GROUP) + head * GROUP + row % GROUP) * E + element
    tl.store(out + where, result.to(out.dtype.element_ty), mask=element < E)
