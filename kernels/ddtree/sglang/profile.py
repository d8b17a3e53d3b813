"""What a step costs, measured at start-up by running steps."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from ddtree.sglang.policy import CostModel, Point
from ddtree.sglang.scratch import Scratch, whole_pages

if TYPE_CHECKING:
    from ddtree.sglang.lanes import Lane
    from ddtree.sglang.worker import DDTreeWorker

WARM, ROUNDS, TIMED = 2, 4, 4
"""Steps before the clock, and how often how many are timed: the least of the rounds counts, since whoever else uses the
GPU meanwhile, such as other servers that start beside this one, only makes a round longer.
"""
NEAR, FAR = 64, 8192


def measure(worker: "DDTreeWorker") -> CostModel:
    """Every lane at every captured batch size, at a short and at a long context."""
    points: dict[Point, float] = {}
    limit = worker.model_runner.req_to_token_pool.size
    for lane in worker.lanes:
        for requests in [size for size in lane.stages.captured or [1] if size <= limit]:
            for context in _contexts(worker, requests, lane.width):
                points[requests, lane.width, context] = _step_ms(worker, lane, requests, context)
    return CostModel(points)


def _contexts(worker: "DDTreeWorker", requests: int, width: int) -> list[int]:
    """Two, as far apart as the model and the KV cache let them be; the requests share the prefix that is read, and
    differ in their last tokens, which choose a mixture's experts.
    """
    page = worker.model_runner.page_size
    room = worker.model_runner.max_total_num_tokens - requests * whole_pages(_room(worker, width), page)
    far = min(FAR, worker.model_runner.model_config.context_len // 2, room)
    near, far = whole_pages(NEAR, page), far - far % page
    return [near, far] if far > 2 * near else [near]


def _room(worker: "DDTreeWorker", width: int) -> int:
    """Slots of a request after its prefix: every step begins at the same length."""
    return worker.block_size + width


def _step_ms(worker: "DDTreeWorker", lane: "Lane", requests: int, context: int) -> float:
    scratch = Scratch(worker, requests, _room(worker, lane.width), shared=context)
    lengths = torch.full((requests,), context, device=scratch.device)
    last = torch.arange(1, requests + 1, device=scratch.device)
    with torch.inference_mode():
        for _ in range(WARM):
            scratch.step(lane, lengths, last)
        spans = [_span_ms(lambda: scratch.step(lane, lengths, last)) for _ in range(ROUNDS)]
    scratch.clear()
    return min(spans) / TIMED


def _span_ms(step: Callable[[], object]) -> float:
    """Of TIMED steps, by the GPU's clock."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    for _ in range(TIMED):
        step()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))
