"""Before it serves, the server proves on its own GPU that a tree changes no text.

For every captured batch size, full and padded, and for one beyond them, a few steps run from random prompts. Each
emitted token is then held against plain forwards over the same text, which know nothing of trees: its logit must be the
best one but for rounding. A mask that is not refilled, a wrong slot or a wrong position fails here (it would raise
acceptance, and so look splendid in any benchmark).

One token that rounding moved is no sign: a bfloat16 server whose texts were as near to plain decoding's as stock
DFlash's had one 0.38 standard deviations below the best. A spoiled mask moves most tokens of a request, so a request is
judged by the mean over its tokens: 0.063 at the one that ended a check with a limit of 0.05 there, 0.36 to 0.63 with a
spoiled mask. So 0.1 is allowed, and never more than 0.2.

Before that the server does once what it will do for days: it prefills more than any graph was captured with, which has
SGLang replace its workspaces by larger ones, and gives the memory back that is free then. A graph that still holds an
old one of its own block fails here, not in production; a small one may share a block with what is in use.
"""

import logging
from typing import TYPE_CHECKING

import torch

from ddtree.sglang.scratch import Scratch, Texts, whole_pages

if TYPE_CHECKING:
    from ddtree.sglang.lanes import Lane
    from ddtree.sglang.worker import DDTreeWorker

PROMPT = 12
STEPS = 3
COMPARED = 10
ROUNDING = {torch.float32: 0.002, torch.float16: 0.01, torch.bfloat16: 0.1}
"""How far below the best logit a request's tokens may lie on average, in standard deviations of the row."""
OUTLIER = 10
"""How many times as far one token may lie."""
RESTLESS, LOOSEST = 4, 2
"""A target whose plain forwards differ by the batch they are in (experts chosen at a near-tie) is allowed so many times
that difference, up to so many times ROUNDING.
"""

logger = logging.getLogger(__name__)


class SelfCheckError(RuntimeError):
    """The server's text is not the target's: it must not serve."""


def run(worker: "DDTreeWorker") -> str:
    """`passed`, or SelfCheckError in one line."""
    worst = 0.0
    with torch.inference_mode():
        _outgrow(worker)
        allowed = tolerance(ROUNDING[worker.model_runner.dtype], _unrest(worker))
        for lane in worker.lanes:
            for requests in _batches(worker, lane):
                prompts, emitted = _generate(worker, lane, requests)
                distances = _distances(worker, prompts, emitted)
                worst = max(worst, judge(distances, allowed, f"width {lane.width}, batch size {requests}"))
    logger.info("DDTREE self-check passed: farthest mean %.4f of %.4f standard deviations", worst, allowed)
    return "passed"


def _outgrow(worker: "DDTreeWorker") -> None:
    """Prefill twice the tokens of the largest captured step and more, or what a chunk of SGLang's or the KV cache
    takes, and release memory as a flush of SGLang's cache does.
    """
    runner = worker.model_runner
    pool, space, chunk = runner.req_to_token_pool, runner.max_total_num_tokens, runner.server_args.chunked_prefill_size
    captured = max([1, *(rows for lane in worker.lanes for rows in lane.stages.captured)])
    wanted = min(2 * captured * worker.block_size + 1, space, chunk if chunk and chunk > 0 else space)
    length = min(wanted, pool.req_to_token.shape[1], runner.model_config.context_len)
    requests = min(-(-wanted // length), pool.size, space // whole_pages(length, runner.page_size))
    random = torch.Generator().manual_seed(0)
    texts = torch.randint(runner.model_config.vocab_size, (requests, length), generator=random).tolist()
    scratch = Scratch(worker, requests, length)
    scratch.inject(scratch.extend(texts).hidden_states, texts)
    scratch.clear()
    torch.cuda.empty_cache()


def tolerance(rounding: float, unrest: float) -> float:
    """The mean distance that a request may have."""
    return max(rounding, min(RESTLESS * unrest, LOOSEST * rounding))


def judge(distances: torch.Tensor, allowed: float, where: str) -> float:
    """The greatest mean distance of a request, from distances [requests, places], NaN where it has no token.
    SelfCheckError where a mean is above `allowed` or a token OUTLIER times as far; a distance that is no number fails.
    """
    told = ~distances.isnan()
    means = distances.nansum(1) / told.sum(1).clamp(min=1)
    farthest = float(distances.nan_to_num(0.0).max())
    mean, at = means.max(0)
    if not (float(mean) <= allowed and farthest <= OUTLIER * allowed):
        raise SelfCheckError(
            f"DDTREE self-check failed at {where}: the tokens of request {int(at)} lie {float(mean):.3f} standard "
            f"deviations below the target's best ({allowed:.3f} is rounding), one {farthest:.2f}; the server would "
            "change texts and does not serve"
        )
    return float(mean)


def _batches(worker: "DDTreeWorker", lane: "Lane") -> list[int]:
    """Every captured size, one less where that is padded to it, and one more than any, which runs without a graph; one
    request and two where nothing is captured.
    """
    limit = worker.model_runner.req_to_token_pool.size
    captured = lane.stages.captured or [1]
    sizes = {size for size in (*captured, captured[-1] + 1) if size <= limit}
    padded = {size - 1 for size in sizes if size - 1 > 0 and size - 1 not in captured}
    return sorted(sizes | padded)


def _generate(worker: "DDTreeWorker", lane: "Lane", requests: int) -> tuple[Texts, Texts]:
    """Random prompts of different lengths, and what a few steps emit after them."""
    random = torch.Generator().manual_seed(requests)
    lengths = [PROMPT - i % 5 for i in range(requests)]
    vocabulary = worker.model_runner.model_config.vocab_size
    prompts = [torch.randint(vocabulary, (n,), generator=random).tolist() for n in lengths]
    scratch = Scratch(worker, requests, PROMPT + STEPS * worker.block_size + lane.width)
    out = scratch.extend(prompts)
    scratch.inject(out.hidden_states, prompts)
    last = out.next_token_logits.argmax(-1)
    emitted = [[token] for token in last.tolist()]
    cached = torch.tensor(lengths, device=last.device)
    for _ in range(STEPS):
        outcome = scratch.step(lane, cached, last)
        counts, tokens = outcome.lengths(requests).tolist(), outcome.emitted(requests).view(requests, -1).tolist()
        for request, count in enumerate(counts):
            emitted[request] += tokens[request][:count]
        cached, last = outcome.prefix(requests), outcome.bonus(requests)
    scratch.clear()
    return prompts, emitted


def _distances(worker: "DDTreeWorker", prompts: Texts, emitted: Texts) -> torch.Tensor:
    """[requests, COMPARED]: how far each emitted token lies below the best one of a plain forward, in standard
    deviations of its row; NaN where a request has emitted less. A row that holds no numbers is infinitely far.
    """
    requests = len(prompts)
    scratch = Scratch(worker, requests, PROMPT + COMPARED)
    columns = []
    for place in range(COMPARED):
        texts = [prompt + tokens[:place] for prompt, tokens in zip(prompts, emitted, strict=True)]
        said = torch.tensor([tokens[place] if place < len(tokens) else 0 for tokens in emitted])
        distances = _below_best(scratch.extend(texts).next_token_logits, said)
        live = torch.tensor([place < len(tokens) for tokens in emitted])
        columns.append(distances.nan_to_num(float("inf")).where(live, float("nan")))
    scratch.clear()
    return torch.stack(columns, 1)


def _below_best(logits: torch.Tensor, said: torch.Tensor) -> torch.Tensor:
    """[requests] on the CPU: distance of a token from the best of its row, in standard deviations of the row."""
    rows = logits.float()
    chosen = rows.gather(1, said.to(rows.device)[:, None])[:, 0]
    return ((rows.max(-1).values - chosen) / rows.std(-1)).cpu()


def _unrest(worker: "DDTreeWorker") -> float:
    """The same distance between plain forwards alone: of what is best for a text by itself, in a batch of others. The
    greatest mean of a text.
    """
    count = min(8, worker.model_runner.req_to_token_pool.size)
    random = torch.Generator().manual_seed(0)
    texts = torch.randint(worker.model_runner.model_config.vocab_size, (count, PROMPT + COMPARED), generator=random)
    among, alone = (Scratch(worker, rows, PROMPT + COMPARED) for rows in (count, 1))
    means = torch.zeros(count)
    for length in range(PROMPT, PROMPT + COMPARED):
        prefixes = texts[:, :length].tolist()
        best = torch.cat([alone.extend([prefix]).next_token_logits.argmax(-1) for prefix in prefixes])
        means += _below_best(among.extend(prefixes).next_token_logits, best) / COMPARED
    among.clear()
    return float(means.max())
