import numpy as np
import pytest
import torch

import ddtree


def oracle(logits: torch.Tensor, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows = logits.double().numpy()
    order = np.lexsort((np.broadcast_to(np.arange(rows.shape[-1]), rows.shape), -rows), axis=-1)[..., :k]
    peak = rows.max(axis=-1, keepdims=True)
    lse = peak[..., 0] + np.log(np.exp(rows - peak).sum(axis=-1))
    return np.take_along_axis(rows, order, axis=-1) - lse[..., None], order, lse


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("shape", "k"), [((2, 3, 500), 8), ((1, 7, 4096), 16), ((3, 1, 5), 5), ((1, 2, 9), 1)])
def test_matches_float64(dtype, shape, k):
    logits = (torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 4).to(dtype)
    top = ddtree.topk_logprobs(logits, k)
    log_probs, ids, lse = oracle(logits, k)
    assert np.array_equal(top.token_ids.numpy(), ids)
    np.testing.assert_allclose(top.log_probs.numpy(), log_probs, atol=2e-5)
    np.testing.assert_allclose(top.lse.numpy(), lse, atol=2e-5)
    assert top.log_probs.dtype == top.lse.dtype == torch.float32
    assert top.token_ids.dtype == torch.int32


def test_ties_go_to_the_lower_token():
    logits = torch.tensor([[[0.0, 2, 1, 2, 1, 1, 2, 0]]])
    assert ddtree.topk_logprobs(logits, 5).token_ids.tolist() == [[[1, 3, 6, 2, 4]]]
    assert ddtree.topk_logprobs(torch.zeros(1, 1, 3000), 4).token_ids.tolist() == [[[0, 1, 2, 3]]]


def test_masked_tokens_come_last_with_log_prob_minus_infinity():
    logits = torch.tensor([[[-torch.inf, 1.0, -torch.inf, 0.0]]])
    top = ddtree.topk_logprobs(logits, 4)
    assert top.token_ids.tolist() == [[[1, 3, 0, 2]]]
    assert top.log_probs[0, 0, 2:].tolist() == [-torch.inf, -torch.inf]


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_shards_merge_to_the_whole(shards):
    logits = torch.randint(-8, 8, (2, 4, 320), generator=torch.Generator().manual_seed(3)).float() / 4
    whole = ddtree.topk_logprobs(logits, 12)
    width = 320 // shards
    parts = [
        ddtree.topk_logprobs(logits[..., i * width : (i + 1) * width], 12, vocab_offset=i * width)
        for i in range(shards)
    ]
    merged = ddtree.merge_topk(parts)
    assert torch.equal(merged.token_ids, whole.token_ids)
    torch.testing.assert_close(merged.log_probs, whole.log_probs, atol=1e-5, rtol=0)
    torch.testing.assert_close(merged.lse, whole.lse, atol=1e-5, rtol=0)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_rows_without_a_distribution_are_refused(value):
    logits = torch.zeros(2, 2, 6)
    logits[1, 0, 4] = value
    with pytest.raises(ValueError, match=r"\[\[1, 0\]\] hold NaN"):
        ddtree.topk_logprobs(logits, 2)
    with pytest.raises(ValueError, match="nothing but -inf"):
        ddtree.topk_logprobs(torch.full((1, 1, 4), -torch.inf), 2)


def test_bad_input_is_named():
    logits = torch.zeros(1, 2, 6)
    for k in (0, 7):
        with pytest.raises(ValueError, match=f"k is {k}, allowed is 1 to the vocabulary of 6"):
            ddtree.topk_logprobs(logits, k)
    with pytest.raises(ValueError, match=r"k is 2\.5, allowed is a whole number"):
        ddtree.topk_logprobs(logits, 2.5)
    with pytest.raises(ValueError, match=r"logits has dtype torch\.int64"):
        ddtree.topk_logprobs(logits.long(), 2)
    with pytest.raises(ValueError, match=r"logits has shape \[2, 6\]"):
        ddtree.topk_logprobs(logits[0], 2)
    with pytest.raises(ValueError, match="at least one shard"):
        ddtree.merge_topk([])
