"""What a sampler should draw from, in float64 and by a full sort."""

import torch


def law(logits: torch.Tensor, heat: float, top_k: int, top_p: float, min_p: float, joint: bool) -> torch.Tensor:
    """float64 [V]: probabilities after the cuts of `ddtree.sample_target`, of logits [V] and a temperature above 0."""
    values = logits.double()
    weights = ((values - values.max()) / heat).exp()
    ranked = values.sort(descending=True).values
    keep = torch.ones_like(values, dtype=torch.bool)
    if 0 < top_k < len(values):
        keep &= values >= ranked[top_k - 1]
    if top_p < 1:
        within = weights if joint else torch.where(keep, weights, 0.0)
        mass = within.sort(descending=True).values.cumsum(0)
        last = int(torch.searchsorted(mass, top_p * mass[-1]))
        keep &= values >= ranked[last]
    keep &= weights >= min_p
    kept = torch.where(keep, weights, 0.0)
    return kept / kept.sum()


def misplaced(law: torch.Tensor, uniforms: torch.Tensor, drawn: torch.Tensor) -> float:
    """How far the worst of these draws [N], token ids of one law [V], lies from its uniform [N]: 0 where each uniform
    falls within its token's share of the cumulative distribution. 1 for a token outside the law.
    """
    ends = law.cumsum(0)[drawn.long()]
    shares = law[drawn.long()]
    places = uniforms.double()
    far = torch.maximum(ends - shares - places, places - ends).clamp(min=0.0)
    return float(torch.where(shares > 0, far, 1.0).max())
