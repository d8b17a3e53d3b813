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
