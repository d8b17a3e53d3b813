"""Drawing the target's token at every position, and reading its most probable tokens."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ddtree import sample_target, topk_logprobs
from engines.reference.decoding.request import SamplingParams, TopLogprobs

_MASK = (1 << 64) - 1


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) from the seed and the absolute position of the token it draws, by SplitMix64 (Steele 2014).

    Nothing else enters, so neither batching nor the decoding method changes a draw. 24 bits: exact in float32.
    """
    state = _mix(seed & _MASK) + (position + 1) * 0x9E3779B97F4A7C15
    return (_mix(state & _MASK) >> 40) / (1 << 24)


def _mix(value: int) -> int:
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & _MASK
    return value ^ (value >> 31)


def draw(logits: Tensor, params: Sequence[SamplingParams], positions: Tensor) -> Tensor:
    """One token of the target [B, N] for logits [B, N, V]; positions [B, N] are those of the logits' own tokens."""
    if all(param.temperature == 0 for param in params):
        return greedy(logits)
    device = logits.device

    def column(values: list[float], dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=device)

    return sample_target(
        logits,
        column([param.temperature for param in params]),
        column([param.top_k for param in params], torch.int32),
        column([param.top_p for param in params]),
        column([param.min_p for param in params]),
        _uniforms(params, positions),
    )


def greedy(logits: Tensor) -> Tensor:
    """The most probable token of each row, the lowest id among equals."""
    # Five times as fast as argmax for bfloat16 on a CPU.
    return logits.max(-1).indices


def _uniforms(params: Sequence[SamplingParams], positions: Tensor) -> Tensor:
    """float32 [B, N]: the token after position p is drawn with the uniform of p + 1."""
    rows = [
        [uniform(param.seed, position + 1) for position in row]
        for param, row in zip(params, positions.tolist(), strict=True)
    ]
    return torch.tensor(rows, dtype=torch.float32, device=positions.device)


def top_logprobs(logits: Tensor, count: int) -> tuple[TopLogprobs, ...]:
    """The `count` most probable tokens of each row of logits [R, V], from the float32 log-softmax."""
    top = topk_logprobs(logits.unsqueeze(0), count)
    rows = zip(top.token_ids[0].tolist(), top.log_probs[0].tolist(), strict=True)
    return tuple(tuple(zip(ids, log_probs, strict=True)) for ids, log_probs in rows)
