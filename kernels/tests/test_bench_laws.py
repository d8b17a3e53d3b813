"""The float64 law that the benchmark holds samplers against."""

import pytest
import torch

import ddtree
from ddtree.bench.laws import law, misplaced

CASES = [(1.0, 0, 1.0, 0.0), (0.8, 20, 1.0, 0.0), (1.0, 0, 0.9, 0.0), (0.7, 50, 0.9, 0.05), (1.0, 8, 0.6, 0.0)]


def test_a_law_by_hand():
    logits = torch.log(torch.tensor([0.3, 0.25, 0.2, 0.15, 0.06, 0.04]))
    third = law(logits, 1.0, 3, 0.7, 0.0, joint=False)
    assert third.tolist() == pytest.approx([0.3 / 0.55, 0.25 / 0.55, 0, 0, 0, 0])
    assert law(logits, 1.0, 3, 0.7, 0.0, joint=True).tolist() == pytest.approx([0.4, 1 / 3, 0.2 / 0.75, 0, 0, 0])
    assert law(logits, 1.0, 0, 1.0, 0.4, joint=True).count_nonzero() == 4
    assert law(logits, 0.5, 0, 1.0, 0.0, joint=True)[0] == pytest.approx(0.09 / 0.2202)


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_the_reference_draws_from_it(case: tuple[float, int, float, float], joint: bool):
    generator = torch.Generator().manual_seed(11)
    logits = (torch.randn(3000, generator=generator) * 2.5).half().float()
    uniforms = torch.rand(1, 500, generator=generator)
    heat, top_k, top_p, min_p = (torch.tensor([value]) for value in case)
    drawn = ddtree.sample_target(
        logits.expand(1, 500, -1), heat, top_k, top_p.float(), min_p.float(), uniforms, joint=joint
    )
    assert misplaced(law(logits, *case, joint), uniforms[0], drawn[0]) < 1e-5


def test_draws_that_are_not_of_the_law_are_far_off():
    half = law(torch.zeros(4), 1.0, 0, 1.0, 0.0, joint=True)
    uniforms = torch.tensor([0.1, 0.6])
    assert misplaced(half, uniforms, torch.tensor([0, 2])) == 0.0
    assert misplaced(half, uniforms, torch.tensor([0, 3])) == pytest.approx(0.15)
    assert misplaced(law(torch.tensor([9.0, 0.0]), 1.0, 1, 1.0, 0.0, joint=True), uniforms, torch.tensor([0, 1])) == 1.0
