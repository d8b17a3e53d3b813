"""One token per tree node, drawn from the target's distribution."""

import torch

from ddtree.checks import FLOATS, INTEGERS, require, require_tensor
from ddtree.dispatch import implementation


def sample_target(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    uniforms: torch.Tensor,
    *,
    joint: bool = False,
) -> torch.Tensor:
    """int32 [B,N]: a sample at every node from logits [B,N,V]; uniforms [B,N] in [0, 1) decide, so equal seeds repeat.

    Per request: temperature float32 [B] (0 = argmax, lowest id among equals), then top_k [B] (0 or less = off), then
    top_p float32 [B] over what top_k left (1 = off), then min_p float32 [B] relative to the best token (0 = off).
    `joint`: top_p over the whole distribution instead, and what both cuts keep is left (as SGLang's own sampling). A
    cut never separates equal logits: all of them stay. The sample is the inverse of the cumulative distribution in
    order of token ids.
    """
    device, batch = logits.device, logits.shape[0]
    require_tensor("logits", logits, (None, None, None), FLOATS, device)
    require(min(logits.shape) > 0, f"logits has shape {list(logits.shape)}, every size must be positive")
    for name, tensor in (("temperature", temperature), ("top_p", top_p), ("min_p", min_p)):
        require_tensor(name, tensor, (batch,), (torch.float32,), device)
    require_tensor("top_k", top_k, (batch,), INTEGERS, device)
    require_tensor("uniforms", uniforms, tuple(logits.shape[:2]), (torch.float32,), device)
    if device.type == "cpu":
        _check_values(temperature, top_p, min_p, uniforms)
    drawn: torch.Tensor = implementation("sample", device).sample_target(
        logits, temperature, top_k, top_p, min_p, uniforms, joint
    )
    return drawn


def _check_values(temperature: torch.Tensor, top_p: torch.Tensor, min_p: torch.Tensor, uniforms: torch.Tensor) -> None:
    require(bool((temperature >= 0).all()), f"temperature is {temperature.tolist()}, allowed is 0 or more")
    require(bool(((top_p > 0) & (top_p <= 1)).all()), f"top_p is {top_p.tolist()}, allowed is above 0 up to 1")
    require(bool(((min_p >= 0) & (min_p <= 1)).all()), f"min_p is {min_p.tolist()}, allowed is 0 to 1")
    require(bool(((uniforms >= 0) & (uniforms < 1)).all()), "uniforms must lie in [0, 1)")
