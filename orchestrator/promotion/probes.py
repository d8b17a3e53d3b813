"""Real prompts sent to a server or through the router, measured as in a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engines.base import Endpoint
from engines.registry import get_engine
from orchestrator.load import LoadClient
from orchestrator.metrics import measure
from orchestrator.promotion.release import Release, ReleaseRecord
from orchestrator.records import request_frame
from orchestrator.spec import WorkloadSpec

if TYPE_CHECKING:
    import pandas as pd


async def ask(
    asked: Release,
    endpoint: Endpoint,
    record: ReleaseRecord,
    warmup: int = 0,
) -> pd.DataFrame:
    """The smoke prompts of `record` to the release `asked`, greedily and as many at once as when measured: requests
    with `ttft`, `tpot` and `ok` (metrics.measure). `warmup` of them are asked before, for nothing.

    A request that fails is a row with its error; none is sent after it.
    """
    prompts = [prompt.prompt() for prompt in record.smoke]
    workload = WorkloadSpec(request_timeout_s=record.request_timeout_s, max_tokens=record.max_tokens)
    async with LoadClient(get_engine(asked.record.arm.engine), endpoint, workload) as client:
        if warmup:
            await client.run(prompts[:warmup], 1, record.max_tokens)
        result = await client.run(prompts, min(record.promise.concurrency, len(prompts)), record.max_tokens)
    return measure(request_frame([answer.row(0.0) for answer in result.answers]))
