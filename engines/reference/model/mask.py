"""Additive attention masks of one forward: 0 where a query may attend, -inf where not."""

import torch
from torch import Tensor


def additive_masks(
    among: Tensor,
    prefix_lens: Tensor,
    positions: Tensor,
    end: int,
    windows: tuple[int | None, ...],
    group_size: int,
    dtype: torch.dtype,
) -> dict[int | None, Tensor]:
    """Masks [B, 1, T * group_size, end] by window, for T new tokens in rows prefix..prefix+T-1 of each sequence.

    Every new token attends to the whole prefix and to those new tokens that `among` bool [B, T, T] names; `positions`
    [B, T] are the new tokens' sequence positions, from which a sliding window counts.
    """
    allowed = _allowed(among, prefix_lens, end)
    masks = {}
    for window in set(windows):
        seen = allowed if window is None else allowed & _near(positions, prefix_lens, end, window)
        mask = torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, float("-inf"))
        masks[window] = mask.repeat_interleave(group_size, 1).unsqueeze(1)
    return masks


def causal(batch: int, width: int, device: torch.device) -> Tensor:
    """bool [B, T, T]: each token sees itself and those before it."""
    return torch.ones(width, width, dtype=torch.bool, device=device).tril().expand(batch, width, width)


def bidirectional(batch: int, width: int, device: torch.device) -> Tensor:
    """bool [B, T, T]: all see all."""
    return torch.ones(batch, width, width, dtype=torch.bool, device=device)


def _allowed(among: Tensor, prefix_lens: Tensor, end: int) -> Tensor:
    """bool [B, T, end] before any window."""
    width = among.shape[1]
    offset = torch.arange(end, device=among.device) - prefix_lens.unsqueeze(1)
    new = ((offset >= 0) & (offset < width)).unsqueeze(1)
    index = offset.clamp(0, width - 1).unsqueeze(1).expand(-1, width, -1)
    return (offset < 0).unsqueeze(1) | (new & among.gather(2, index))


def _near(positions: Tensor, prefix_lens: Tensor, end: int, window: int) -> Tensor:
    """bool [B, T, end]: keys fewer than `window` positions before the query."""
    width = positions.shape[1]
    rows = torch.arange(end, device=positions.device)
    offset = (rows - prefix_lens.unsqueeze(1)).clamp(0, width - 1)
    key_positions = torch.where(rows < prefix_lens.unsqueeze(1), rows, positions.gather(1, offset))
    return positions.unsqueeze(2) - key_positions.unsqueeze(1) < window
