"""Target sampling by thresholds, sorting only as much of a row as its cuts need."""

import torch

HEAD = 128  # logits sorted before a full sort is tried
SPAN = 256  # tokens whose weights are summed before the search narrows to one span


def sample_target(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    uniforms: torch.Tensor,
    joint: bool,
) -> torch.Tensor:
    """int32 [B,N], as `ddtree.sample.sample_target`."""
    best, drawn = logits.max(dim=-1)
    if not bool(torch.isfinite(best).all()):
        raise ValueError("logits hold NaN, +inf or a row of nothing but -inf")
    for request, heat in enumerate(temperature.tolist()):
        if heat > 0:
            cuts = (int(top_k[request]), float(top_p[request]), float(min_p[request]))
            rows = logits[request].float()
            drawn[request] = _draw(rows, best[request].float(), heat, cuts, uniforms[request], joint)
    return drawn.to(torch.int32)


def _draw(
    rows: torch.Tensor,
    best: torch.Tensor,
    heat: float,
    cuts: tuple[int, float, float],
    uniforms: torch.Tensor,
    joint: bool,
) -> torch.Tensor:
    top_k, top_p, min_p = cuts
    weights = rows.sub(best[:, None]).div_(heat).exp_()
    whole = _mass(weights)
    if 0 < top_k < rows.shape[1]:
        weights.masked_fill_(rows < torch.topk(rows, top_k, dim=-1).values[:, -1:], 0.0)
    if top_p < 1:
        goal = top_p * (whole if joint else _mass(weights))
        weights.masked_fill_(rows < _nucleus(rows, weights, goal), 0.0)
    if min_p > 0:
        weights.masked_fill_(weights < min_p, 0.0)
    return _invert(weights, uniforms)


def _mass(weights: torch.Tensor) -> torch.Tensor:
    return _spans(weights).double().sum(dim=-1, keepdim=True)


def _nucleus(rows: torch.Tensor, weights: torch.Tensor, mass: torch.Tensor) -> torch.Tensor:
    """Logit [N,1] at which each row's descending cumulative weight first reaches `mass`; the lowest where it never
    does.
    """
    width = min(HEAD, rows.shape[1])
    while True:
        values, ids = torch.topk(rows, width, dim=-1)
        cumulative = weights.gather(-1, ids).double().cumsum(dim=-1)
        if width == rows.shape[1] or bool((cumulative[:, -1:] >= mass).all()):
            last = (cumulative < mass).sum(dim=-1, keepdim=True).clamp(max=width - 1)
            return values.gather(-1, last)
        width = rows.shape[1]


def _spans(weights: torch.Tensor) -> torch.Tensor:
    pad = -weights.shape[1] % SPAN
    return torch.nn.functional.pad(weights, (0, pad)).view(weights.shape[0], -1, SPAN).sum(dim=-1)


def _invert(weights: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """First token at which the cumulative weight exceeds uniform * total: first its span, then within."""
    spans = _spans(weights).double().cumsum(dim=-1)
    goal = uniforms.double()[:, None] * spans[:, -1:]
    span = _first_above(spans, goal)
    goal = goal - (spans.gather(-1, (span - 1).clamp(min=0)) * (span > 0))
    ids = span * SPAN + torch.arange(SPAN)
    inside = weights.gather(-1, ids.clamp(max=weights.shape[1] - 1)).masked_fill_(ids >= weights.shape[1], 0.0)
    return (span * SPAN + _first_above(inside.double().cumsum(dim=-1), goal))[:, 0]


def _first_above(cumulative: torch.Tensor, goal: torch.Tensor) -> torch.Tensor:
    # Rounding must not carry the goal up to the total, past the last entry that has weight.
    total = cumulative[:, -1:]
    below = torch.minimum(goal, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, below, right=True)
