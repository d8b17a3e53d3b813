import numpy as np
import pytest
import torch
from scipy.stats import chisquare

import ddtree


def kept(logits: np.ndarray, heat: float, top_k: int, top_p: float, min_p: float, joint: bool = False) -> np.ndarray:
    """Probabilities after the cuts, in float64, by a full sort."""
    order = np.argsort(-logits, kind="stable")
    weights = np.exp((logits - logits.max()) / heat)
    keep = np.ones(len(logits), dtype=bool)
    if 0 < top_k < len(logits):
        keep &= logits >= logits[order[top_k - 1]]
    if top_p < 1:
        within = order if joint else order[keep[order]]
        mass = weights[within].cumsum() / weights[within].sum()
        keep &= logits >= logits[within[np.searchsorted(mass, top_p)]]
    keep &= weights >= min_p
    return np.where(keep, weights, 0) / weights[keep].sum()


CASES = [
    (1.0, 0, 1.0, 0.0),
    (0.7, 5, 1.0, 0.0),
    (1.3, 0, 0.8, 0.0),
    (1.0, 0, 1.0, 0.2),
    (0.9, 12, 0.6, 0.05),
    (2, 1, 1, 0),
]


def draw(
    logits: torch.Tensor, case: tuple[float, int, float, float], uniforms: torch.Tensor, joint: bool = False
) -> torch.Tensor:
    heat, top_k, top_p, min_p = case
    return ddtree.sample_target(
        logits,
        torch.tensor([heat], dtype=torch.float32),
        torch.tensor([top_k]),
        torch.tensor([top_p], dtype=torch.float32),
        torch.tensor([min_p], dtype=torch.float32),
        uniforms,
        joint=joint,
    )


JOINT_CASES = [(0.9, 12, 0.6, 0.05), (1.0, 12, 0.6, 0.0), (1.0, 3, 0.95, 0.0), (1.0, 30, 0.5, 0.0), (1.0, 0, 0.8, 0.0)]


@pytest.mark.parametrize(("case", "joint"), [*((c, False) for c in CASES), *((c, True) for c in JOINT_CASES)])
@pytest.mark.parametrize("tied", [False, True])
def test_distribution_after_the_cuts(case, joint, tied):
    generator = torch.Generator().manual_seed(4)
    logits = torch.randn(40, generator=generator) * 2
    logits = torch.round(logits) if tied else logits
    uniforms = torch.rand(1, 8000, generator=generator)
    drawn = draw(logits.expand(1, 8000, 40), case, uniforms, joint)[0]
    law = kept(logits.double().numpy(), *case, joint)
    counts = np.bincount(drawn.numpy(), minlength=40)
    assert counts[law == 0].sum() == 0
    seen = law > 0
    if seen.sum() > 1:
        assert chisquare(counts[seen], law[seen] * 8000).pvalue > 1e-3


def test_a_joint_top_p_counts_what_top_k_took_away():
    """Top-k 3 leaves 0.75, of which 0.7 are two tokens; 0.7 of the whole are three."""
    logits = torch.log(torch.tensor([0.3, 0.25, 0.2, 0.15, 0.06, 0.04]))
    uniforms = torch.linspace(0, 0.9999, 400)[None]
    seen = [set(draw(logits.expand(1, 400, 6), (1.0, 3, 0.7, 0.0), uniforms, joint)[0].tolist()) for joint in (0, 1)]
    assert seen == [{0, 1}, {0, 1, 2}]


def test_uniforms_invert_the_cumulative_distribution_in_token_order():
    logits = torch.log(torch.tensor([0.1, 0.2, 0.3, 0.4])).expand(1, 6, 4)
    drawn = draw(logits, (1.0, 0, 1.0, 0.0), torch.tensor([[0.0, 0.05, 0.15, 0.35, 0.59, 0.9999999]]))
    assert drawn.tolist() == [[0, 0, 1, 2, 2, 3]]
    assert drawn.dtype == torch.int32


def test_nucleus_wider_than_the_sorted_head():
    logits = torch.zeros(1, 3, 5000)
    logits[..., 0] = 1e-3
    drawn = draw(logits, (1.0, 0, 0.5, 0.0), torch.tensor([[0.1, 0.5, 0.99]]))
    assert (drawn[0, 1:] > 400).all()  # all equals stay, so the draw reaches the whole vocabulary
    assert drawn[0, 2] > 4900


def test_temperature_zero_is_argmax_with_the_lowest_id_and_mixes_with_sampling():
    logits = torch.tensor([[[0.0, 3, 3, 1]], [[0.0, 3, 3, 1]]])
    drawn = ddtree.sample_target(
        logits,
        torch.tensor([0.0, 1.0]),
        torch.tensor([0, 2]),
        torch.ones(2),
        torch.zeros(2),
        torch.tensor([[0.9], [0.9]]),
    )
    assert drawn.tolist() == [[1], [2]]


def test_masked_tokens_are_never_drawn():
    logits = torch.tensor([-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]).expand(1, 50, 5)
    assert set(draw(logits, (1.0, 0, 1.0, 0.0), torch.linspace(0, 0.99999, 50)[None])[0].tolist()) == {1, 3}


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ((-1.0, 0, 1.0, 0.0), "temperature"),
        ((1.0, 0, 0.0, 0.0), "top_p"),
        ((1.0, 0, 1.5, 0.0), "top_p"),
        ((1.0, 0, 1.0, 2.0), "min_p"),
    ],
)
def test_bad_parameters_are_named(case, message):
    with pytest.raises(ValueError, match=f"{message} is"):
        draw(torch.zeros(1, 2, 4), case, torch.zeros(1, 2))


def test_bad_logits_and_uniforms_are_named():
    with pytest.raises(ValueError, match="uniforms must lie"):
        draw(torch.zeros(1, 2, 4), CASES[0], torch.ones(1, 2))
    with pytest.raises(ValueError, match="logits hold NaN"):
        draw(torch.full((1, 2, 4), torch.nan), CASES[0], torch.zeros(1, 2))
    with pytest.raises(ValueError, match="uniforms has shape"):
        draw(torch.zeros(1, 2, 4), CASES[0], torch.zeros(1, 3))
