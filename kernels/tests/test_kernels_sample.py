"""The sampling kernel against the reference, uniform by uniform."""

import pytest
import torch

import ddtree

CASES = [
    (1.0, 0, 1.0, 0.0),
    (0.7, 5, 1.0, 0.0),
    (1.3, 0, 0.8, 0.0),
    (1.0, 0, 1.0, 0.2),
    (0.9, 12, 0.6, 0.05),
    (0.0, 3, 0.5, 0.0),
]


@pytest.mark.parametrize(
    ("dtype", "vocab"),
    [(torch.float32, 60), (torch.bfloat16, 60), (torch.float16, 60), (torch.bfloat16, 4200)],
)
@pytest.mark.parametrize("joint", [False, True])
def test_equals_the_reference(by_kernel, dtype, vocab, joint):
    generator = torch.Generator().manual_seed(vocab)
    rows = torch.randn(len(CASES), 1, vocab, generator=generator) * 2
    logits = rows.expand(len(CASES), 3, vocab).contiguous().to(dtype)
    heat, top_k, top_p, min_p = (torch.tensor(column) for column in zip(*CASES, strict=True))
    arguments = (logits, heat, top_k, top_p.float(), min_p.float(), torch.rand(len(CASES), 3, generator=generator))
    drawn = by_kernel(ddtree.sample_target, *arguments, joint=joint)
    expected = ddtree.sample_target(*arguments, joint=joint)
    # Sums are rounded in another order, so a uniform that falls on a boundary may move by one token: none does here.
    assert torch.equal(drawn, expected)
    assert len(set(drawn[0].tolist())) > 1


@pytest.mark.parametrize("capacity", [8, 512])
def test_a_cut_too_wide_to_list_is_searched_whole(by_kernel, monkeypatch, capacity):
    monkeypatch.setattr("ddtree.triton.sample.CAPACITY", capacity)
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(1, 4, 4500, generator=generator)
    uniforms = torch.tensor([[0.0, 0.3, 0.7, 0.9999]])
    for top_k, top_p, min_p in ((3000, 1.0, 0.0), (0, 0.95, 0.0), (40, 0.9, 0.0), (0, 1.0, 0.1)):
        options = (torch.ones(1), torch.tensor([top_k]), torch.tensor([top_p]), torch.tensor([min_p]), uniforms)
        drawn = by_kernel(ddtree.sample_target, logits, *options)
        assert torch.equal(drawn, ddtree.sample_target(logits, *options)), (top_k, top_p, min_p)


@pytest.mark.parametrize("top_p", [0.3, 0.6, 0.9, 0.999])
@pytest.mark.parametrize("top_k", [1, 3, 40])
def test_a_joint_cut_equals_the_reference_s(by_kernel, top_k, top_p):
    """Whether top-k or top-p keeps less, or the same."""
    generator = torch.Generator().manual_seed(top_k)
    logits = torch.randn(1, 6, 300, generator=generator) * 2
    uniforms = torch.rand(1, 6, generator=generator)
    options = (torch.ones(1), torch.tensor([top_k]), torch.tensor([top_p]), torch.zeros(1), uniforms)
    drawn = by_kernel(ddtree.sample_target, logits, *options, joint=True)
    assert torch.equal(drawn, ddtree.sample_target(logits, *options, joint=True))


def test_a_cut_far_below_the_best_token(by_kernel):
    logits = torch.full((1, 3, 4500), -30.0)
    logits[..., 4400] = 0.0
    logits[..., 100:103] = torch.tensor([-25.0, -26.0, -27.0])
    uniforms = torch.tensor([[0.0, 0.5, 0.999999]])
    for top_k, top_p in ((3, 1.0), (200, 1.0), (0, 0.99)):
        options = (torch.full((1,), 9.0), torch.tensor([top_k]), torch.tensor([top_p]), torch.zeros(1), uniforms)
        drawn = by_kernel(ddtree.sample_target, logits, *options)
        assert torch.equal(drawn, ddtree.sample_target(logits, *options)), (top_k, top_p)


def test_ties_at_a_cut_all_stay(by_kernel):
    logits = torch.tensor([0.0, -1.0, -1.0, -1.0, -3.0]).expand(1, 5, 5).contiguous()
    uniforms = torch.tensor([0.0, 0.5, 0.6, 0.9, 0.999])[None]
    for top_k, top_p in ((2, 1.0), (0, 0.6)):
        arguments = (torch.ones(1), torch.tensor([top_k]), torch.tensor([top_p]), torch.zeros(1), uniforms)
        assert set(by_kernel(ddtree.sample_target, logits, *arguments)[0].tolist()) >= {0, 1, 3}


def test_a_row_of_nan_stays_inside_the_vocabulary(by_kernel, monkeypatch):
    from ddtree.triton.sample import sample_target

    options = (torch.ones(1), torch.tensor([3]), torch.tensor([0.5]), torch.zeros(1), torch.full((1, 2), 0.5))
    logits = torch.full((1, 2, 50), torch.nan)
    logits[0, 1] = torch.zeros(50)
    logits[0, 1, 7] = torch.nan
    drawn = by_kernel(sample_target, logits, *options, joint=False)
    assert ((drawn >= 0) & (drawn < 50)).all()
