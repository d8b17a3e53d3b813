# mypy: allow-untyped-calls
"""Target samples in two passes over the logits, without sorting.

`survey` reads a row in parts and keeps of each its best logit, its total weight and, where a cut is wanted, the number
(top-k) or weight (top-p) at or above each of LEVELS halvings of its best weight. From those, `collect` knows a level
that the cut cannot lie below, and lists the few tokens of each part that reach it. `draw` has one program per row: it
finds the exact cut among the listed tokens, two bits of the logits a pass, and inverts the uniform, first over parts,
then within one. A part with more than CAPACITY such tokens lists none, and its row is searched whole.
"""

import torch
import triton

from ddtree.checks import require, require_contiguous
from ddtree.triton.draw import draw
from ddtree.triton.shortlist import collect, survey
from ddtree.triton.topk import LOW_BITS

TILE = 4096
STRIP = 1024
CAPACITY = 512
LEVELS = 12


def sample_target(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    uniforms: torch.Tensor,
    joint: bool,
) -> torch.Tensor:
    """int32 [B,N], as `ddtree.sample.sample_target`. A row with NaN or +inf gives some token of the vocabulary."""
    batch, nodes, vocab = logits.shape
    require(logits.stride(2) == 1, f"logits has stride {logits.stride(2)} along the vocabulary, allowed is 1")
    require_contiguous(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    tile, rows, device = min(TILE, triton.next_power_of_2(vocab)), batch * nodes, logits.device
    parts, capacity = triton.cdiv(vocab, tile), min(CAPACITY, tile)
    padded = triton.next_power_of_2(parts)
    part_max, part_sum = torch.empty(2, rows, parts, device=device)
    part_id, counts = torch.empty(2, rows, parts, dtype=torch.int32, device=device)
    ladder = torch.empty(rows, parts, LEVELS, device=device)
    listed = torch.empty(rows, parts, capacity, dtype=torch.int16, device=device)
    out = torch.empty(batch, nodes, dtype=torch.int32, device=device)
    strides, cuts = (logits.stride(0), logits.stride(1)), (temperature, top_k, top_p)
    survey[(rows, parts)](
        logits,
        part_max,
        part_id,
        part_sum,
        ladder,
        *cuts,
        nodes,
        vocab,
        *strides,
        LEVELS=LEVELS,
        TILE=tile,
        num_warps=8,
    )
    sizes = {"PARTS": padded, "CAPACITY": capacity, "TILE": tile}
    lists = (listed, counts)
    collect[(rows, parts)](
        logits,
        part_max,
        part_sum,
        ladder,
        *lists,
        *cuts,
        min_p,
        nodes,
        vocab,
        *strides,
        LEVELS=LEVELS,
        STRIP=min(STRIP, tile),
        **sizes,
    )
    draw[(rows,)](
        logits,
        part_max,
        part_id,
        part_sum,
        *lists,
        *cuts,
        min_p,
        uniforms.contiguous(),
        out,
        nodes,
        vocab,
        parts,
        *strides,
        CHUNK=max(1, 4096 // padded),
        LOW=LOW_BITS[logits.dtype],
        JOINT=joint,
        **sizes,
        num_warps=8,
    )
    return out
