"""Requests that no scheduler knows, in KV slots that nobody has been given yet: for use before the server serves."""

from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode

from ddtree.sglang.requests import Requests, plan, unpadded
from ddtree.sglang.trees import Outcome

if TYPE_CHECKING:
    from ddtree.sglang.lanes import Lane
    from ddtree.sglang.worker import DDTreeWorker

Texts = list[list[int]]


def whole_pages(tokens: int, page: int) -> int:
    """KV slots of the pages that so many tokens take."""
    return -(-tokens // page) * page


class ScratchError(RuntimeError):
    """The KV cache or the context is too small for what start-up needs."""


class Scratch:
    """`requests` rows of req_to_token with `room` KV slots each after the first `shared`, which are the same for all as
    far as they fill pages: attention that reads whole pages takes it that a request's own begin with one.

    Leaves the pool as it found it but for the contents of unused slots.
    """

    def __init__(self, worker: "DDTreeWorker", requests: int, room: int, shared: int = 0) -> None:
        self.worker = worker
        self.runner = worker.model_runner
        self.device = self.runner.device
        self.requests = requests
        self.room = shared + room
        page = self.runner.page_size
        common = shared - shared % page
        own = whole_pages(self.room - common, page)
        needed = common + requests * own
        if needed > self.runner.max_total_num_tokens:
            raise ScratchError(f"start-up needs {needed} KV slots, there are {self.runner.max_total_num_tokens}")
        if self.room > self._table.shape[1]:
            raise ScratchError(f"start-up needs a context of {self.room} tokens, there are {self._table.shape[1]}")
        slots = torch.arange(page, page + needed, device=self.device)  # the first page is nobody's
        rest = slots[common:].view(requests, own)[:, : self.room - common]
        self.slots = torch.cat([slots[:common].expand(requests, common), rest], dim=1)
        self.rows = torch.arange(1, requests + 1, device=self.device)
        self._table[self.rows, : self.room] = self.slots.int()

    @property
    def _table(self) -> torch.Tensor:
        table: torch.Tensor = self.runner.req_to_token_pool.req_to_token
        return table

    def clear(self) -> None:
        self._table[self.rows, : self.room] = 0

    def step(self, lane: "Lane", lengths: torch.Tensor, last: torch.Tensor) -> Outcome:
        """One step of the worker from these cached lengths and last tokens [requests]."""
        host = torch.full((self.requests,), self.room)
        requests = Requests(self.rows, lengths, last, host, int(host.sum()))
        return self.worker.step(requests, lane)[0]

    def extend(self, texts: Texts) -> Any:
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
            out_cache_loc=self._places(lengths),
            seq_lens_sum=sum(lengths),
            seq_lens_cpu=torch.tensor(lengths),
            positions=self._positions(lengths),
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
        plan(self.runner, batch)
        unpadded(batch, sum(lengths))
        return self.runner.forward(batch).logits_output

    def inject(self, features: torch.Tensor, texts: Texts) -> None:
        """Give the drafter the target's features of these texts, as after a prefill."""
        lengths = [len(text) for text in texts]
        self.worker._append_target_hidden_to_draft_kv_by_loc(
            target_hidden=features, cache_loc=self._places(lengths), positions=self._positions(lengths)
        )

    def _places(self, lengths: list[int]) -> torch.Tensor:
        return torch.cat([row[:n] for row, n in zip(self.slots, lengths, strict=True)])

    def _positions(self, lengths: list[int]) -> torch.Tensor:
        return torch.cat([torch.arange(n, device=self.device) for n in lengths])
