"""Before it serves, the server proves on its own GPU that a tree changes no text.

For every captured batch size, full and padded, and for one beyond them, a few steps run from random prompts. Each
emitted token is then held against plain forwards over the same text, which know nothing of trees: its logit must be the
best one but for rounding. A mask that is not refilled, a wrong slot or a wrong position fails here (it would raise
acceptance, and so look splendid in any benchmark).
"""

import logging
from typing import TYPE_CHECKING

import torch

from ddtree.sglang.scratch import Scratch, Texts

if TYPE_CHECKING:
    from ddtree.sglang.lanes import Lane
    from ddtree.sglang.worker import DDTreeWorker

PROMPT = 12
STEPS = 3
COMPARED = 10
ROUNDING = {torch.float32: 0.01, torch.float16: 0.03, torch.bfloat16: 0.2}
"""The largest distance from the best logit that is rounding, in standard deviations of the row."""

logger = logging.getLogger(__name__)


class SelfCheckError(RuntimeError):
    """The server's text is not the target's: it must not serve."""


def run(worker: "DDTreeWorker") -> str:
    """`passed`, or SelfCheckError in one line."""
    worst = 0.0
    with torch.inference_mode():
        for lane in worker.lanes:
            for requests in _batches(worker, lane):
                prompts, emitted = _generate(worker, lane, requests)
                worst = max(worst, _compare(worker, lane, prompts, emitted))
    logger.info("DDTREE self-check passed: largest distance from the best logit %.3f standard deviations", worst)
    return "passed"


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


def _compare(worker: "DDTreeWorker", lane: "Lane", prompts: Texts, emitted: Texts) -> float:
    """The largest distance, in standard deviations, of an emitted token from the best one of a plain forward.
    SelfCheckError where it is more than rounding.
    """
    worst, requests = 0.0, len(prompts)
    scratch = Scratch(worker, requests, PROMPT + COMPARED)
    for place in range(COMPARED):
        texts = [prompt + tokens[:place] for prompt, tokens in zip(prompts, emitted, strict=True)]
        logits = scratch.extend(texts).next_token_logits.float()
        live = [request for request in range(requests) if place < len(emitted[request])]
        if not live:
            break
        said = torch.tensor([emitted[request][place] for request in live], device=logits.device)
        rows = logits[live]
        distances = (rows.max(-1).values - rows.gather(1, said[:, None])[:, 0]) / rows.std(-1)
        distance, at = distances.max(0)
        worst = max(worst, float(distance))
        if not float(distance) <= ROUNDING[worker.model_runner.dtype]:
            raise SelfCheckError(
                f"DDTREE self-check failed at width {lane.width}, batch size {requests}: token {place} of request "
                f"{live[int(at)]} is {float(distance):.2f} standard deviations below the target's best; the server "
                "would change texts and does not serve"
            )
    scratch.clear()
    return worst
