"""Top-K with canonical ties on the CPU."""

import torch


def topk_logprobs(logits: torch.Tensor, k: int, vocab_offset: int) -> tuple[torch.Tensor, ...]:
    """(log_probs, token_ids, lse, logits) as in `ddtree.topk.TopK`."""
    rows = logits.reshape(-1, logits.shape[-1]).float()
    lse = torch.logsumexp(rows, dim=-1)
    values, ids = _canonical_topk(rows, k)
    log_probs = torch.where(torch.isfinite(lse)[:, None], values - lse[:, None], float("-inf"))
    shape = (*logits.shape[:2], k)
    ids = (ids + vocab_offset).to(torch.int32)
    return log_probs.view(shape), ids.view(shape), lse.view(logits.shape[:2]), values.view(shape)


def _canonical_topk(rows: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    # torch.topk promises no order among equals: rows with a tie in their best k + 1 are redone.
    values, ids = torch.topk(rows, min(k + 1, rows.shape[1]), dim=-1)
    tied = (values[:, 1:] == values[:, :-1]).any(dim=-1)
    values, ids = values[:, :k].contiguous(), ids[:, :k].contiguous()
    for row in tied.nonzero().flatten().tolist():
        candidates = (rows[row] >= values[row, -1]).nonzero().flatten()
        best, order = torch.sort(rows[row, candidates], descending=True, stable=True)
        values[row], ids[row] = best[:k], candidates[order[:k]]
    return values, ids
