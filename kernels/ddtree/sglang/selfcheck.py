"""Before it serves, the server proves on its own GPU that a tree changes no text.

For every captured batch size, full and padded, a few steps run from random prompts. Each emitted token is then held
against plain forwards over the same text, which know nothing of trees: its logit must be the best one but for
rounding. A mask that is not refilled, a wrong slot or a wrong position fails here (it would raise acceptance, and so
look splendid in any benchmark).
"""

import logging
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode

if TYPE_CHECKING:
    from ddtree.sglang.worker import DDTreeWorker

PROMPT = 12
STEPS = 3
COMPARED = 10
ROUNDING = {torch.float32: 0.01, torch.float16: 0.05, torch.bfloat16: 0.2}
"""The largest distance from the best logit that is rounding, in standard deviations of the row."""

logger = logging.getLogger(__name__)


class SelfCheckError(RuntimeError):
    """The server's text is not the target's: it must not serve."""


def run(worker: "DDTreeWorker") -> str:
    """`passed`, or SelfCheckError in one line."""
    worst = 0.0
    for requests in _batches(worker):
        scratch = _Scratch(worker, requests)
        with torch.inference_mode():
            prompts, emitted = scratch.generate()
            worst = max(worst, scratch.compare(prompts, emitted))
        scratch.clear()
    logger.info("DDTREE self-check passed: largest distance from the best logit %.3f standard deviations", worst)
    return "passed"


def _batches(worker: "DDTreeWorker") -> list[int]:
    """Every captured size, and one less where that is padded to it; without graphs, one request and two."""
    limit = worker.model_runner.req_to_token_pool.size
    captured = worker.stages.captured or [1, 2]
    sizes = {size for size in captured if size <= limit}
    padded = {size - 1 for size in sizes if size - 1 > 0 and size - 1 not in captured}
    return sorted(sizes | padded)


class _Scratch:
    """Requests that no scheduler knows, in KV slots that nobody has been given yet."""

    def __init__(self, worker: "DDTreeWorker", requests: int) -> None:
        self.worker = worker
        self.runner = worker.model_runner
        self.device = self.runner.device
        self.requests = requests
        width = max(worker.backend.verify.width, worker.block_size)
        self.room = PROMPT + STEPS * worker.block_size + width
        needed = 2 * requests * self.room
        if needed > self.runner.max_total_num_tokens:
            raise SelfCheckError(
                f"the self-check needs {needed} KV slots, there are {self.runner.max_total_num_tokens}"
            )
        first = self.runner.page_size
        slots = torch.arange(first, first + needed, device=self.device).view(2, requests, self.room)
        self.slots, self.spare = slots
        self.rows = torch.arange(1, requests + 1, device=self.device)
        self._table(self.slots)

    def _table(self, slots: torch.Tensor) -> None:
        self.runner.req_to_token_pool.req_to_token[self.rows, : self.room] = slots.int()

    def clear(self) -> None:
        self.runner.req_to_token_pool.req_to_token[self.rows, : self.room] = 0

    def generate(self) -> tuple[list[list[int]], list[list[int]]]:
        """Prompts of different lengths, and what a few steps emit after them."""
        vocabulary = self.runner.model_config.vocab_size
        random = torch.Generator().manual_seed(self.requests)
        lengths = [PROMPT - i % 5 for i in range(self.requests)]
        prompts = [torch.randint(vocabulary, (n,), generator=random).tolist() for n in lengths]
        out = self._extend(prompts, self.slots)
        last = out.next_token_logits.argmax(-1)
        self._inject(out.hidden_states, prompts)
        emitted = [[token] for token in last.tolist()]
        cached = torch.tensor(lengths, device=self.device)
        for _ in range(STEPS):
            outcome = self._step(cached, last)
            counts = outcome.lengths(self.requests).tolist()
            tokens = outcome.emitted(self.requests).view(self.requests, -1).tolist()
            for request, count in enumerate(counts):
                emitted[request] += tokens[request][:count]
            cached, last = outcome.prefix(self.requests).clone(), outcome.bonus(self.requests).clone()
        return prompts, emitted

    def _step(self, cached: torch.Tensor, last: torch.Tensor) -> Any:
        from ddtree.sglang.worker import Requests

        host = torch.full((self.requests,), self.room)
        requests = Requests(self.rows, cached, last, host, int(host.sum()))
        return self.worker.step(requests)[0]

    def compare(self, prompts: list[list[int]], emitted: list[list[int]]) -> float:
        """The largest distance, in standard deviations, of an emitted token from the best. SelfCheckError if it is
        more than rounding.
        """
        self._table(self.spare)
        worst = 0.0
        for place in range(COMPARED):
            live = [i for i in range(self.requests) if place < len(emitted[i])]
            texts = [prompts[i] + emitted[i][:place] for i in range(self.requests)]
            logits = self._extend(texts, self.spare).next_token_logits.float()
            for request in live:
                token = emitted[request][place]
                row = logits[request]
                distance = float((row.max() - row[token]) / row.std())
                worst = max(worst, distance)
                if not distance <= ROUNDING[self.runner.dtype]:
                    raise SelfCheckError(
                        f"DDTREE self-check failed at batch size {self.requests}: token {place} of request {request} "
                        f"is {distance:.2f} standard deviations below the target's best: the server would change texts"
                    )
        self._table(self.slots)
        return worst

    def _extend(self, texts: list[list[int]], slots: torch.Tensor) -> Any:
        """A plain forward over whole texts: logits of each one's next token, and the features of all tokens."""
        lengths = [len(text) for text in texts]
        counts = torch.tensor(lengths, dtype=torch.int32, device=self.device)
        batch = ForwardBatch(
            forward_mode=ForwardMode.EXTEND,
            batch_size=self.requests,
            input_ids=torch.tensor(list(chain.from_iterable(texts)), device=self.device),
            req_pool_indices=self.rows,
            seq_lens=counts.long(),
            orig_seq_lens=counts,
            out_cache_loc=torch.cat([row[:n] for row, n in zip(slots, lengths, strict=True)]),
            seq_lens_sum=sum(lengths),
            seq_lens_cpu=torch.tensor(lengths),
            positions=torch.cat([torch.arange(n, device=self.device) for n in lengths]),
            extend_num_tokens=sum(lengths),
            extend_seq_lens=counts,
            extend_prefix_lens=torch.zeros_like(counts),
            extend_start_loc=torch.cumsum(counts, 0, dtype=torch.int32) - counts,
            extend_prefix_lens_cpu=[0] * self.requests,
            extend_seq_lens_cpu=lengths,
            extend_logprob_start_lens_cpu=lengths,
            spec_algorithm=self.runner.spec_algorithm,
            capture_hidden_mode=CaptureHiddenMode.FULL,
        )
        return self.runner.forward(batch).logits_output

    def _inject(self, features: torch.Tensor, prompts: list[list[int]]) -> None:
        lengths = [len(prompt) for prompt in prompts]
        self.worker._append_target_hidden_to_draft_kv_by_loc(
            target_hidden=features,
            cache_loc=torch.cat([row[:n] for row, n in zip(self.slots, lengths, strict=True)]),
            positions=torch.cat([torch.arange(n, device=self.device) for n in lengths]),
        )
