"""One width of verification: its attention backend, its captured graphs, its stages."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from ddtree.sglang.backends import DDTreeAttnBackend
from ddtree.sglang.stage import Stages


@dataclass(frozen=True)
class Lane:
    """`runner` is SGLang's graph runner of this width; without CUDA graphs its eager one, or None. `kept`: what the
    graphs of the stages work in and nobody else keeps.
    """

    backend: DDTreeAttnBackend
    runner: Any
    stages: Stages
    kept: tuple[torch.Tensor, ...]

    @property
    def width(self) -> int:
        return self.backend.verify.width

    def captures(self, batch: Any) -> bool:
        """Whether the forward of this batch will be a replay."""
        return self.runner is not None and bool(self.runner.can_run_graph(batch))

    @contextmanager
    def on(self, model_runner: Any) -> Iterator[None]:
        """The target's runner with this lane's backend and graphs in place."""
        before = model_runner.attn_backend, model_runner.decode_cuda_graph_runner
        model_runner.attn_backend, model_runner.decode_cuda_graph_runner = self.backend, self.runner
        try:
            yield
        finally:
            model_runner.attn_backend, model_runner.decode_cuda_graph_runner = before
