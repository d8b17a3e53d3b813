"""Cross-entropy against hard labels, the target's distribution, or both, without ever holding all logits."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

CHUNK_ROWS = 4096
"""Rows whose logits exist at once: 0.8 GB of float32 at a vocabulary of 49,152."""


@dataclass(frozen=True)
class Rows:
    """N predictions to score: states [N,H], labels [N], weights [N]; teacher [N,H] only where a loss uses it."""

    states: Tensor
    labels: Tensor
    weights: Tensor
    teacher: Tensor | None


def position_weights(block_size: int, gamma: float, device: torch.device) -> Tensor:
    """exp(-(k-1)/gamma) for the predicted positions k = 1 .. block_size - 1: early ones gate all that follow."""
    return torch.exp(-torch.arange(block_size - 1, device=device, dtype=torch.float32) / gamma)


def block_loss(rows: Rows, head: Tensor, hard: float, *, compiled: bool) -> Tensor:
    """Weighted mean cross-entropy; the label distribution is hard * one-hot + (1 - hard) * softmax(teacher @ head.T).

    Differentiable in `rows.states` alone. `hard` = 1 needs no teacher.
    """
    if hard < 1 and rows.teacher is None:
        raise ValueError("soft labels need the target's final states")
    return _BlockLoss.apply(rows.states, rows, head, hard, _compiled_chunk() if compiled else _chunk)  # type: ignore[no-any-return,no-untyped-call]


class _BlockLoss(torch.autograd.Function):
    """Computes the gradient in the forward pass: the logits of a chunk are dropped before the next one's are made."""

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, rows: Rows, head: Tensor, hard: float, chunk: Callable[..., tuple[Tensor, Tensor]]
    ) -> Tensor:
        total = rows.weights.sum().clamp(min=1e-6)
        losses, gradients = [], []
        for start in range(0, states.shape[0], CHUNK_ROWS):
            part = slice(start, start + CHUNK_ROWS)
            teacher = None if rows.teacher is None else rows.teacher[part]
            loss, gradient = chunk(states[part], teacher, rows.labels[part], rows.weights[part], head, hard)
            losses.append(loss)
            gradients.append(gradient)
        ctx.save_for_backward(torch.cat(gradients), total)
        return torch.stack(losses).sum() / total

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        gradient, total = ctx.saved_tensors
        return gradient * (upstream / total).to(gradient.dtype), None, None, None, None


def _chunk(
    states: Tensor, teacher: Tensor | None, labels: Tensor, weights: Tensor, head: Tensor, hard: float
) -> tuple[Tensor, Tensor]:
    """Summed weighted loss and its gradient in `states`."""
    logits = (states @ head.T).float()
    normaliser = logits.logsumexp(dim=-1, keepdim=True)
    wanted = hard * (torch.arange(head.shape[0], device=labels.device) == labels[:, None]).float()
    if teacher is not None and hard < 1:
        wanted = wanted + (1 - hard) * (teacher @ head.T).float().softmax(dim=-1)
    loss = ((normaliser[:, 0] - (wanted * logits).sum(dim=-1)) * weights).sum()
    gradient = ((logits - normaliser).exp() - wanted) * weights[:, None]
    return loss, gradient.to(states.dtype) @ head


@cache
def _compiled_chunk() -> Callable[..., tuple[Tensor, Tensor]]:
    return torch.compile(_chunk, dynamic=False)
