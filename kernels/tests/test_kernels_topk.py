"""Top-K kernels against the reference."""

import pytest
import torch

import ddtree


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("shape", "k"), [((1, 2, 700), 4), ((2, 1, 5), 5), ((1, 1, 4200), 3)])
def test_equals_the_reference(by_kernel, dtype, shape, k):
    logits = (torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 4).to(dtype)
    expected = ddtree.topk_logprobs(logits, k, vocab_offset=10)
    top = by_kernel(ddtree.topk_logprobs, logits, k, vocab_offset=10)
    assert torch.equal(top.token_ids, expected.token_ids)
    assert torch.equal(top.logits, expected.logits)
    torch.testing.assert_close(top.log_probs, expected.log_probs, atol=1e-5, rtol=0)
    torch.testing.assert_close(top.lse, expected.lse, atol=1e-5, rtol=0)


def test_ties_and_signed_zeros_go_to_the_lower_token(by_kernel):
    logits = torch.zeros(1, 3, 300)
    logits[0, 1, ::2] = -0.0
    logits[0, 2] = torch.arange(300) % 3
    top = by_kernel(ddtree.topk_logprobs, logits, 4)
    assert top.token_ids.tolist() == [[[0, 1, 2, 3], [0, 1, 2, 3], [2, 5, 8, 11]]]


def test_strided_rows(by_kernel):
    logits = torch.randn(2, 5, 200)[:, 1:4, :150]
    assert torch.equal(by_kernel(ddtree.topk_logprobs, logits, 2).token_ids, ddtree.topk_logprobs(logits, 2).token_ids)


def test_rows_without_a_distribution(by_kernel, monkeypatch):
    monkeypatch.setattr("ddtree.topk.check_topk", lambda top: None)  # as on CUDA, where nothing waits
    logits = torch.zeros(1, 4, 100)
    logits[0, 0, 70], logits[0, 1, 3], logits[0, 2] = torch.nan, torch.inf, -torch.inf
    top = by_kernel(ddtree.topk_logprobs, logits, 4)
    assert (top.log_probs[0, :3] == -torch.inf).all()
    assert torch.isfinite(top.log_probs[0, 3]).all()
    assert torch.isfinite(top.lse).tolist() == [[False, False, False, True]]
    assert ((top.token_ids >= 0) & (top.token_ids < 100)).all()
    monkeypatch.undo()
    with pytest.raises(ValueError, match="hold NaN"):
        ddtree.check_topk(top)
