"""What a step is given."""

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Requests:
    """The requests of a step. pool_rows, lengths, last [R]: rows of req_to_token, cached lengths, last tokens.

    host_lengths [R] on the CPU and host_total: upper bounds of the lengths and of their sum. sampling: SGLang's
    SamplingBatchInfo, None for greedy.
    """

    pool_rows: torch.Tensor
    lengths: torch.Tensor
    last: torch.Tensor
    host_lengths: torch.Tensor
    host_total: int
    sampling: Any = None

    @property
    def count(self) -> int:
        return self.lengths.shape[0]


def plan(runner: Any, batch: Any) -> None:
    """Give a ForwardBatch built by hand its plan of KV slots, which SGLang 0.5.23 wants and 0.5.17 does not know."""
    translator = getattr(runner, "kv_index_translator", None)
    if translator is not None:
        translator.bind_own_plan(batch)


def unpadded(batch: Any, tokens: int) -> None:
    """Say how many tokens a prefill built by hand has, under the name of this version. SGLang's graph pads them and
    shows attention no more than these; flashinfer refuses what is padded.
    """
    newer = "global_num_token_non_padded_cpu"
    setattr(batch, newer if hasattr(batch, newer) else "num_token_non_padded_cpu", tokens)
