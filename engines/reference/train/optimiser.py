"""AdamW for everything, or Muon for the matrices and AdamW for the norms, with clipping and one rate."""

from collections.abc import Sequence

import torch
from torch import nn

CLIP = 1.0
WEIGHT_DECAY = 0.01
BETAS = (0.9, 0.95)


class Optimiser:
    """Holds float32 master weights' optimisers; `step` clips, updates and clears the gradients."""

    def __init__(self, module: nn.Module, kind: str, learning_rate: float):
        self.learning_rate = learning_rate
        self.parameters = list(module.parameters())
        matrices = [parameter for parameter in self.parameters if parameter.dim() == 2]
        vectors = [parameter for parameter in self.parameters if parameter.dim() != 2]
        self.optimisers: list[torch.optim.Optimizer] = [_adamw(vectors, learning_rate, decay=0.0)]
        if kind == "muon":
            self.optimisers.append(
                torch.optim.Muon(matrices, lr=learning_rate, weight_decay=WEIGHT_DECAY, adjust_lr_fn="match_rms_adamw")
            )
        else:
            self.optimisers.append(_adamw(matrices, learning_rate, decay=WEIGHT_DECAY))

    def step(self, factor: float) -> None:
        nn.utils.clip_grad_norm_(self.parameters, CLIP)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = factor * self.learning_rate
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)


def _adamw(parameters: Sequence[nn.Parameter], learning_rate: float, *, decay: float) -> torch.optim.AdamW:
    fused = parameters[0].is_cuda
    return torch.optim.AdamW(parameters, lr=learning_rate, betas=BETAS, weight_decay=decay, fused=fused)
