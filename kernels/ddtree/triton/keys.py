# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Sort keys: a float and an id in one int64, larger meaning larger float, then lower id."""

import triton
import triton.language as tl

LOWEST = tl.constexpr(-(2**63))


@triton.jit
def ordered(x):
    """int32 in the order of float32 x; -0.0 and 0.0 are equal. Its own inverse on bit patterns."""
    bits = tl.where(x == 0, 0.0, x).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def pack(x, ids, valid):
    """Key of (x, id), or a key below all others where not valid."""
    key = (ordered(x).to(tl.int64) << 32) | (0xFFFFFFFF - ids.to(tl.int64))
    return tl.where(valid, key, LOWEST)


@triton.jit
def unpack_id(key):
    return 0xFFFFFFFF - (key & 0xFFFFFFFF)


@triton.jit
def unpack_value(key):
    bits = (key >> 32).to(tl.int32)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
