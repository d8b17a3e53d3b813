"""The two stages between and after the forwards, each captured once for every batch size that SGLang captures."""

from typing import Any

import torch

from ddtree.compact import PoolTable
from ddtree.sglang.commit import Inject, Sampling, commit
from ddtree.sglang.probe import Probe
from ddtree.sglang.settings import Settings
from ddtree.sglang.trees import Candidates, Outcome, Verify


class Stages:
    """`grow` makes the trees from the candidates, `commit` settles them with the target's outputs."""

    def __init__(
        self,
        verify: Verify,
        drafts: Candidates,
        sampling: Sampling,
        pools: PoolTable,
        inject: Inject,
        settings: Settings,
        probe: Probe | None,
    ) -> None:
        self._verify = verify
        self._drafts = drafts
        self._sampling = sampling
        self._pools = pools
        self._inject = inject
        self._settings = settings
        self._probe = probe
        self._grows: dict[int, torch.cuda.CUDAGraph] = {}
        self._commits: dict[tuple[int, bool], tuple[torch.cuda.CUDAGraph, Outcome]] = {}

    @property
    def captured(self) -> list[int]:
        """Batch sizes that have graphs."""
        return sorted(self._grows)

    def rows_for(self, requests: int) -> int:
        """The captured batch size that takes so many requests, or the number itself."""
        return min((rows for rows in self._grows if rows >= requests), default=requests)

    def grow(self, rows: int) -> None:
        if rows in self._grows:
            self._grows[rows].replay()
        else:
            self._grow(rows)

    def commit(self, rows: int, greedy: bool) -> Outcome:
        """After a captured verify of so many rows. The outcome is a copy that outlives the next step."""
        graph, outcome = self._commits[rows, greedy]
        graph.replay()
        return outcome.detached()

    def commit_eager(self, requests: int, outputs: Any, greedy: bool) -> Outcome:
        """After an eager verify; `outputs` as SGLang's LogitsProcessorOutput, of that many requests."""
        sampling = None if greedy else self._sampling.first(requests)
        verify, prefix = self._verify.first(requests), self._drafts.prefix[:requests]
        tensors = (outputs.next_token_logits, outputs.hidden_states)
        with torch.inference_mode():
            return commit(verify, prefix, *tensors, self._pools, self._inject, sampling)

    def capture(self, outputs: dict[int, Any]) -> None:
        """Capture both stages for each batch size, given what SGLang's captured verify graphs write."""
        memory = torch.cuda.graph_pool_handle()
        for rows, out in sorted(outputs.items(), reverse=True):
            self._grows[rows], _ = _captured(lambda rows=rows: self._grow(rows), memory)
            for greedy in (True, False):
                self._commits[rows, greedy] = _captured(
                    lambda rows=rows, out=out, greedy=greedy: self.commit_eager(rows, out, greedy), memory
                )

    def _grow(self, rows: int) -> None:
        drafts = self._drafts.first(rows)
        budget = min(self._settings.budget, self._verify.width - 1)
        self._verify.first(rows).grow(drafts, budget, self._settings.chain)
        if self._probe is not None:
            self._probe.look(drafts)


def workspace(helper: object) -> tuple[torch.Tensor, ...]:
    """The tensors that a helper of SGLang's works in. A graph captured through it holds their addresses, but the helper
    takes larger ones when it is given more tokens: whoever keeps the graph must keep these.
    """
    return tuple(value for value in vars(helper).values() if isinstance(value, torch.Tensor)) if helper else ()


def _captured(stage: Any, memory: Any) -> tuple[torch.cuda.CUDAGraph, Any]:
    """The graph of a stage and what it gives. It runs once before, so that its kernels are compiled and loaded."""
    stage()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=memory):
        result = stage()
    return graph, result
