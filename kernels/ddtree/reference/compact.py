"""Row moves by advanced indexing, which copies before it writes."""

from collections.abc import Sequence

import torch

from ddtree.checks import require


def compact_kv(
    keys: torch.Tensor, values: torch.Tensor, node_index: torch.Tensor, lengths: torch.Tensor, prefix_lens: torch.Tensor
) -> None:
    """As `ddtree.compact.compact_kv`."""
    for request, (length, prefix) in enumerate(zip(lengths.tolist(), prefix_lens.tolist(), strict=True)):
        rows = prefix + node_index[request, :length].long()
        inside = prefix >= 0 and bool((rows < keys.shape[2]).all())
        require(
            inside, f"prefix_lens of request {request} is {prefix}: its path leaves the {keys.shape[2]} cached rows"
        )
        for cache in (keys, values):
            cache[:, request, prefix : prefix + length] = cache[:, request, rows]


def compact_slots(
    pools: Sequence[torch.Tensor],
    addresses: torch.Tensor,
    slots: torch.Tensor,
    node_index: torch.Tensor,
    lengths: torch.Tensor,
) -> None:
    """As `ddtree.compact.compact_slots`; the addresses are for the kernel."""
    for request, length in enumerate(lengths.tolist()):
        row = slots[request].long()
        source = row[node_index[request, :length].long()]
        for pool in pools:
            pool[row[:length]] = pool[source]


def gather_rows(hidden: torch.Tensor, node_index: torch.Tensor, out: torch.Tensor) -> None:
    """As `ddtree.compact.gather_rows`."""
    index = node_index.long()
    rows = hidden.gather(1, index.clamp(min=0)[:, :, None].expand(-1, -1, hidden.shape[2]))
    out.copy_(torch.where((index >= 0)[:, :, None], rows, torch.zeros((), dtype=hidden.dtype)))
