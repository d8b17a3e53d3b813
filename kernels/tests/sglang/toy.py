"""A toy in SGLang's place, on the CPU: a target whose KV cache holds tokens, so that whatever a step does to slots,
positions or ancestors shows in its text.

The logits of a token are a fixed random row for what it sees: the tokens in the slots of its prefix, read through
req_to_token, then the nodes that its ancestor bits name, each at its position. The drafter knows the text from a cache
of its own, which only injection fills, and proposes the target's own continuation, among other tokens.
"""

import sys
from collections.abc import Callable
from enum import Enum, auto
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from ddtree.compact import PoolTable
from ddtree.sglang.commit import Sampling
from ddtree.sglang.prepare import Block, prepare
from ddtree.sglang.settings import Settings
from ddtree.sglang.stage import Stages
from ddtree.sglang.trees import Candidates, Verify

VOCABULARY, LAWS, K = 60, 997, 4
MASK = VOCABULARY - 1


class _Mode(Enum):
    EXTEND = auto()
    FULL = auto()


class Batch(SimpleNamespace):
    """Of a prefill, in 0.5.17."""

    num_token_non_padded_cpu = None

    @property
    def told(self) -> int:
        """Tokens without padding."""
        return int(self.num_token_non_padded_cpu)  # type: ignore[arg-type]


class NewerBatch(Batch):
    """In 0.5.23."""

    global_num_token_non_padded_cpu = None

    @property
    def told(self) -> int:
        return int(self.global_num_token_non_padded_cpu)  # type: ignore[arg-type]


def stand_in(monkeypatch: pytest.MonkeyPatch, batch: type[Batch] = Batch) -> None:
    """The one module of SGLang's that start-up steps import."""
    module = ModuleType("sglang.srt.model_executor.forward_batch_info")
    module.ForwardBatch = batch  # type: ignore[attr-defined]
    module.ForwardMode = module.CaptureHiddenMode = _Mode  # type: ignore[attr-defined]
    for name in ("sglang", "sglang.srt", "sglang.srt.model_executor"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for name in ("scratch", "selfcheck", "profile"):
        monkeypatch.delitem(sys.modules, f"ddtree.sglang.{name}", raising=False)


class Graph:
    """A captured graph: what it was captured of, done again."""

    def __init__(self, replay: Callable[[], None]) -> None:
        self.replay = replay


class Worker:
    """What start-up asks of the plugin's worker, with one lane for each width and graphs for `captured` batch sizes."""

    def __init__(
        self, block: int, widths: list[int], captured: list[int], requests: int = 6, page: int = 1, **changed: Any
    ) -> None:
        self.block_size = block
        self.laws = torch.randn(LAWS, VOCABULARY, generator=torch.Generator().manual_seed(3))
        slots = page + 80 * requests
        self.cache, self.drafter = torch.zeros(2, slots + 200, 1, 1)
        table = torch.zeros(requests + 1, 400, dtype=torch.int32)
        self.model_runner = SimpleNamespace(
            req_to_token_pool=SimpleNamespace(size=requests, req_to_token=table),
            max_total_num_tokens=slots + 200 - page,
            page_size=page,
            server_args=SimpleNamespace(chunked_prefill_size=200),
            device="cpu",
            dtype=torch.float32,
            model_config=SimpleNamespace(vocab_size=VOCABULARY, context_len=300),
            spec_algorithm=None,
            forward=self.forward,
        )
        self.__dict__ |= changed
        self.drafts = Candidates.empty(requests, block - 1, K, "cpu")
        self.block = Block.empty(requests, block, "cpu")
        self.lanes = [self._lane(width, captured) for width in widths]
        self.accepted: list[int] = []

    def _lane(self, width: int, captured: list[int]) -> Any:
        verify = Verify.empty(self.drafts.rows, width, self.drafts.depth, "cpu")
        sampling, pools = Sampling.empty(self.drafts.rows, "cpu"), PoolTable.of([self.cache])
        stages = Stages(verify, self.drafts, sampling, pools, self.inject, Settings(width - 1), None)
        for rows in captured:
            stages._grows[rows] = Graph(lambda rows=rows, stages=stages: stages._grow(rows))  # type: ignore[assignment]
        return SimpleNamespace(width=width, stages=stages, verify=verify)

    def law(self, seen: list[tuple[int, int]]) -> torch.Tensor:
        """Logits after these (position, token) pairs."""
        return self.laws[hash(tuple(seen)) % LAWS]

    def forward(self, batch: Any) -> Any:
        """A prefill of whole texts, by attention that reads whole pages and takes no more tokens than it was told."""
        live = torch.arange(batch.told)
        self.cache[batch.out_cache_loc[live], 0, 0] = batch.input_ids[live].float()
        read = [self._pages(*text) for text in zip(batch.req_pool_indices, batch.extend_seq_lens_cpu, strict=True)]
        logits = torch.stack([self.law(list(enumerate(text))) for text in read])
        features = batch.input_ids[:, None].float()
        return SimpleNamespace(logits_output=SimpleNamespace(next_token_logits=logits, hidden_states=features))

    def _pages(self, row: torch.Tensor, length: int) -> list[int]:
        """The tokens of a request by the page that each page of its table begins in."""
        page = self.model_runner.page_size
        pages = self.model_runner.req_to_token_pool.req_to_token[row, :length:page] // page
        tokens = self.cache[(page * pages[:, None] + torch.arange(page)).flatten()[:length], 0, 0]
        return [int(token) for token in tokens]

    def _append_target_hidden_to_draft_kv_by_loc(self, target_hidden: Any, cache_loc: Any, positions: Any) -> None:
        self.drafter[cache_loc, 0, 0] = target_hidden[:, 0]

    def inject(self, features: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor, lengths: Any) -> None:
        for row, length in enumerate(lengths.tolist()):
            at = row * slots.shape[1]
            self.drafter[slots[row, :length], 0, 0] = features[at : at + length, 0]

    def step(self, requests: Any, lane: Any) -> tuple[Any, None, bool]:
        """As the worker's: prepare, draft, grow, verify, commit, on as many rows as a graph would have."""
        rows = lane.stages.rows_for(requests.count)
        verify, table = lane.verify.first(rows), self.model_runner.req_to_token_pool.req_to_token
        drafts, block = self.drafts.first(rows), self.block.first(rows)
        prepare(requests.last, requests.lengths, requests.pool_rows, table, MASK, drafts, block, verify)
        self._draft(requests)
        lane.stages.grow(rows)
        logits = torch.cat([self._verify(verify, row, requests) for row in range(rows)])
        features = verify.input_ids.view(-1, 1).float()
        outputs = SimpleNamespace(next_token_logits=logits, hidden_states=features)
        outcome = lane.stages.commit_eager(rows, outputs, greedy=True)
        self.accepted += outcome.lengths(requests.count).tolist()
        return outcome, None, True

    def _prefix(self, cache: torch.Tensor, requests: Any, row: int) -> list[tuple[int, int]]:
        slots = self.model_runner.req_to_token_pool.req_to_token[requests.pool_rows[row], : requests.lengths[row]]
        return list(enumerate(int(token) for token in cache[slots.long(), 0, 0]))

    def _draft(self, requests: Any) -> None:
        """The right token of each depth, first or second among others."""
        for row in range(requests.count):
            seen = self._prefix(self.drafter, requests, row)
            seen.append((len(seen), int(requests.last[row])))
            for depth in range(self.drafts.depth):
                token = int(self.law(seen).argmax())
                others = [(token + 1 + i) % VOCABULARY for i in range(K - 1)]
                ranked = [token, *others] if (depth + row) % 3 else [others[0], token, *others[1:]]
                self.drafts.token_ids[row, depth] = torch.tensor(ranked)
                self.drafts.log_probs[row, depth] = torch.log(torch.tensor([0.5, 0.3, 0.1, 0.05]))
                seen.append((len(seen), token))

    def _verify(self, verify: Verify, row: int, requests: Any) -> torch.Tensor:
        """Logits [W,V] of a row's nodes, whose tokens go to their slots."""
        tree, positions, tokens = verify.tree, verify.positions[row].tolist(), verify.input_ids[row].tolist()
        self.cache[verify.slots[row], 0, 0] = verify.input_ids[row].float()
        if row >= requests.count:
            return torch.zeros(verify.width, VOCABULARY)
        prefix, laws = self._prefix(self.cache, requests, row), []
        for node in range(verify.width):
            words = [int(word) % 2**64 for word in tree.ancestors[row, node]]
            seen = [i for i in range(verify.width) if words[i // 64] >> (i % 64) & 1]
            laws.append(self.law(prefix + sorted((positions[i], tokens[i]) for i in seen)))
        return torch.stack(laws)
