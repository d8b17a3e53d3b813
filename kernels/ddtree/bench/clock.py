"""Times on the GPU, and the speeds that floors are made of."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence

import torch

from ddtree.bench.table import Limits

Call = Callable[[], object]
GRAPH_US = 20_000.0  # a captured graph lasts about so long at most, or one pass over its inputs
MOST_CALLS = 256  # so many calls in a graph make the start of the graph itself negligible


def time_us(calls: Sequence[Call], replays: int = 15, graph_us: float = GRAPH_US) -> float:
    """Median microseconds of one call. The calls, which should differ in their inputs, are captured as one graph."""
    once = eager_us(calls, 1) * len(calls)
    rounds = max(1, min(MOST_CALLS // len(calls), round(graph_us / once)))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(rounds):
            for call in calls:
                call()
    graph.replay()
    return statistics.median(_event_us(graph.replay) for _ in range(replays)) / (rounds * len(calls))


def eager_us(calls: Sequence[Call], replays: int = 5) -> float:
    """The same without a graph, for code that cannot be captured."""
    for call in calls:
        call()

    def every() -> None:
        for call in calls:
            call()

    return statistics.median(_event_us(every) for _ in range(replays)) / len(calls)


def wall_us(call: Call, repeats: int = 10) -> float:
    """Median microseconds on the host, waiting for the GPU before and after."""
    times = []
    for _ in range(repeats + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times[1:])


def _event_us(run: Callable[[], object]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    run()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e3


def copies(size: int, most: int = 32) -> int:
    """How many inputs of `size` bytes to rotate through, so that the L2 cache holds none of them."""
    return max(1, min(most, 150_000_000 // max(size, 1)))


def copy_bandwidth() -> float:
    """Bytes per microsecond, read plus written, of the fastest copy.

    Eagerly, or by a kernel: a `copy_` that is captured becomes a memcpy node, which an H200 gives to copy engines that
    reach three fifths of this.
    """

    def best(source: torch.Tensor) -> float:
        target = torch.empty_like(source)
        eager = eager_us([lambda: target.copy_(source)] * 8)
        return min(eager, time_us([lambda: torch.neg(source, out=target)], replays=5))

    return max(2 * source.nbytes / best(source) for source in _large())


def read_bandwidth() -> float:
    """Bytes per microsecond of the fastest sum: kernels that hardly write can pass the copy bandwidth."""
    return max(source.nbytes / time_us([source.sum], replays=5) for source in _large())


def _large() -> Iterator[torch.Tensor]:
    for size in (1 << 29, 1 << 30, 1 << 31):  # so much that what the L2 cache keeps does not count
        yield torch.zeros(size // 4, device="cuda")


def launch_us() -> float:
    """Microseconds of the smallest kernel in a captured graph: one that writes a number, or reads it too."""
    one = torch.zeros(1, device="cuda")
    return min(time_us([call]) for call in (one.neg_, lambda: one.fill_(1.0)) for _ in range(2))


def matmul_rate() -> float:
    """Operations per microsecond of a bf16 matrix product of side 8192."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return float(2 * 8192**3 / time_us([lambda: a @ b], replays=5))


def limits() -> Limits:
    """Measured on the GPU at hand."""
    copied, read = copy_bandwidth(), read_bandwidth()
    return Limits(copied, max(copied, read), matmul_rate(), launch_us())
