# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""The first launch of a step: the drafter's block, and where everything lies."""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from ddtree.sglang.trees import Candidates, Verify


@dataclass(frozen=True)
class Block:
    """The drafter's input for up to R requests, [R,B] int64: the last token and then masks, positions, KV slots."""

    ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor

    @classmethod
    def empty(cls, rows: int, size: int, device: torch.device | str) -> "Block":
        return cls(*torch.zeros(3, rows, size, dtype=torch.int64, device=device))

    def first(self, rows: int) -> "Block":
        return Block(self.ids[:rows], self.positions[:rows], self.slots[:rows])


@triton.jit
def _prepare(
    last,
    lengths,
    pool_rows,
    table,
    stride,
    roots,
    prefix,
    ids,
    positions,
    block_slots,
    slots,
    requests,
    mask_token,
    B,
    W,
    PLACES: tl.constexpr,
):
    row = tl.program_id(0)
    live = row < requests
    place = tl.arange(0, PLACES)
    token = tl.load(last + row, mask=live, other=0)
    length = tl.load(lengths + row, mask=live, other=1).to(tl.int64)
    at = tl.load(pool_rows + row, mask=live, other=0).to(tl.int64) * stride + length + place
    slot = tl.load(table + at, mask=live & ((place < B) | (place < W)), other=0).to(tl.int64)
    tl.store(roots + row, token)
    tl.store(prefix + row, length)
    tl.store(ids + row * B + place, tl.where(place == 0, token, mask_token), mask=place < B)
    tl.store(positions + row * B + place, length + place, mask=place < B)
    tl.store(block_slots + row * B + place, slot, mask=place < B)
    tl.store(slots + row * W + place, slot, mask=place < W)


def prepare(
    last: torch.Tensor,
    lengths: torch.Tensor,
    pool_rows: torch.Tensor,
    table: torch.Tensor,
    mask_token: int,
    drafts: Candidates,
    block: Block,
    verify: Verify,
) -> None:
    """Write a step's inputs for R rows, of which the first len(last) are requests; the others get slot 0.

    last, lengths, pool_rows [requests]: last emitted token, cached length and row of `table`, SGLang's req_to_token
    [rows, context] int32, which must hold slots for max(B, W) tokens after each length.
    """
    rows, size = block.ids.shape
    width = verify.width
    _prepare[(rows,)](
        last,
        lengths,
        pool_rows,
        table,
        table.stride(0),
        drafts.roots,
        drafts.prefix,
        block.ids,
        block.positions,
        block.slots,
        verify.slots,
        last.shape[0],
        mask_token,
        size,
        width,
        PLACES=triton.next_power_of_2(max(size, width)),
        num_warps=1,
    )
