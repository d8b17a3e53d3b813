"""Times of everything in a step that is not attention, and of the whole non-model step as one graph."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

import ddtree
from ddtree.bench import baselines, data
from ddtree.bench.clock import Call, copies, time_us, wall_us
from ddtree.bench.table import Gap, Limits, Row, guarded

VOCAB, DEPTH, K, HIDDEN, LAYERS = 151936, 15, 16, 4096, 36

SAMPLING = {
    "argmax": (0.0, 0, 1.0),
    "T=1": (1.0, 0, 1.0),
    "T=1 top-k 50": (1.0, 50, 1.0),
    "T=0.7 top-p 0.9": (0.7, 0, 0.9),
}


TOPK = ((1, 15, VOCAB, 16), (1, 15, VOCAB, 64), (1, 7, 49152, 16), (16, 15, VOCAB, 16))
TREES = ((1, 15), (1, 63), (8, 63), (32, 63), (1, 127), (1, 255))


def rows(limits: Limits) -> Iterator[Row | Gap]:
    """The whole step, then kernel by kernel; one part that breaks leaves the others."""
    bandwidth = limits.bandwidth
    yield from guarded("whole step", (_whole(batch, bandwidth) for batch in (1, 8)))
    yield from guarded("topk", (_topk(*shape, bandwidth) for shape in TOPK))
    yield from guarded("tree", (_tree(*shape, limits.launch_us) for shape in TREES))
    for batch in (1, 32):
        yield from guarded(f"small kernels, batch {batch}", _small(batch, limits))
    yield from guarded("sample", _samples(bandwidth))


def _topk(batch: int, depth: int, vocab: int, k: int, bandwidth: float) -> Row:
    size = batch * depth * vocab * 2
    inputs = [data.logits(batch, depth, vocab) for _ in range(copies(size))]
    us = time_us([partial(ddtree.topk_logprobs, x, k) for x in inputs])
    plain = time_us([partial(_torch_topk, x, k) for x in inputs])
    return Row("topk", f"[{batch}, {depth}, {vocab}] bf16 k={k}", us, size / bandwidth, "bytes", {"torch": plain})


def _torch_topk(x: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.topk(x, k).values, torch.logsumexp(x, -1)


def _tree(batch: int, budget: int, launch_us: float) -> Row:
    tops = [ddtree.topk_logprobs(data.logits(batch, DEPTH, 4096), K) for _ in range(8)]
    roots = torch.zeros(batch, dtype=torch.int32, device="cuda")
    build = partial(ddtree.build_tree, root_tokens=roots, budgets=budget, max_nodes=budget + 1)
    us = time_us([partial(build, t.log_probs, t.token_ids) for t in tops])
    chained = time_us([partial(build, t.log_probs, t.token_ids, chain=True) for t in tops])
    heap = wall_us(partial(baselines.cpu_heap, tops[0].log_probs, tops[0].token_ids, roots, budget))
    shape = f"batch {batch} budget {budget} depth {DEPTH} K {K}"
    return Row("tree", shape, us, launch_us, "a launch", {"CPU heap": heap, "with chain": chained})


def _pools(batch: int, nodes: int) -> tuple[ddtree.PoolTable, list[torch.Tensor]]:
    """Pools of all layers, and disjoint sets of slots to rotate through."""
    pools = torch.zeros(2 * LAYERS, batch * 256, 8, 128, dtype=torch.bfloat16, device="cuda")
    slots = torch.randperm(batch * 256, device="cuda").view(-1, batch, nodes)
    return ddtree.PoolTable.of(list(pools)), list(slots)


def _small(batch: int, limits: Limits) -> Iterator[Row]:
    tree = data.tree(batch, 64)
    targets = tree.tokens.gather(1, tree.first_child.clamp(min=0).long())
    accepted = ddtree.accept_greedy(tree, targets)
    prefix = torch.full((batch,), 8192, dtype=torch.int32, device="cuda")
    mask = torch.empty(batch * 64 * (8192 + 64), dtype=torch.uint8, device="cuda")
    table, slots = _pools(batch, 64)
    hidden = torch.randn(batch, 64, HIDDEN, dtype=torch.bfloat16, device="cuda")
    moved = int((accepted.lengths - 1).clamp(min=0).sum()) * 2 * LAYERS * 2048 * 2
    calls: list[tuple[str, list[Call], float]] = [
        ("ancestor mask", [partial(ddtree.ancestor_mask, tree)], batch * 64 * 64),
        ("positions", [partial(ddtree.positions, tree, prefix)], batch * 64 * 8),
        ("sglang tail", [partial(ddtree.sglang_mask, tree, prefix, out=mask, fill_prefix=False)], batch * 64 * 64),
        ("sglang full", [partial(ddtree.sglang_mask, tree, prefix, out=mask)], mask.numel()),
        ("accept", [partial(ddtree.accept_greedy, tree, targets)], batch * 64 * 16),
        ("compact", [partial(ddtree.compact_slots, table, rows, accepted) for rows in slots], moved),
        ("gather", [partial(ddtree.gather_rows, hidden, accepted)], batch * 16 * HIDDEN * 4),
    ]
    for name, same, size in calls:
        floor, reason = max((size / limits.bandwidth, "bytes"), (limits.launch_us, "a launch"))
        yield Row(name, f"batch {batch} nodes 64", time_us(same), floor, reason)


def _samples(bandwidth: float) -> Iterator[Row]:
    inputs = [data.logits(1, 64, VOCAB) for _ in range(4)]
    size, uniforms = inputs[0].numel() * 2, torch.rand(1, 64, device="cuda")
    for name, (heat, top_k, top_p) in SAMPLING.items():
        settings: dict[str, Any] = {
            "temperature": torch.tensor([heat], device="cuda"),
            "top_k": torch.tensor([top_k], device="cuda"),
            "top_p": torch.tensor([top_p], device="cuda"),
            "min_p": torch.zeros(1, device="cuda"),
        }
        us = time_us([partial(ddtree.sample_target, x, uniforms=uniforms, **settings) for x in inputs])
        others = {"torch argmax": time_us([partial(torch.argmax, x, -1) for x in inputs])} if heat == 0 else {}
        yield Row("sample", f"[1, 64, {VOCAB}] bf16 {name}", us, size / bandwidth, "bytes", others)


def _whole(batch: int, bandwidth: float) -> Row:
    """Top-K, build, positions, mask, target argmax, acceptance, compaction of 36 layers, hidden rows."""
    nodes = 64
    drafts = [data.logits(batch, DEPTH, VOCAB) for _ in range(4)]
    targets = [data.logits(batch, nodes, VOCAB) for _ in range(4)]
    hidden = torch.randn(batch, nodes, HIDDEN, dtype=torch.bfloat16, device="cuda")
    prefix = torch.full((batch,), 1000, dtype=torch.int32, device="cuda")
    mask = torch.empty(batch * nodes * (1000 + nodes), dtype=torch.uint8, device="cuda")
    roots, zeros = torch.zeros(batch, dtype=torch.int32, device="cuda"), torch.zeros(batch, device="cuda")
    ones, uniforms = torch.ones(batch, device="cuda"), torch.zeros(batch, nodes, device="cuda")
    table, slots = _pools(batch, nodes)

    def step(draft: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        top = ddtree.topk_logprobs(draft, K)
        tree = ddtree.build_tree(top.log_probs, top.token_ids, roots, nodes - 1, max_nodes=nodes)
        ddtree.positions(tree, prefix)
        ddtree.sglang_mask(tree, prefix, out=mask, fill_prefix=False)
        chosen = ddtree.sample_target(target, zeros, roots, ones, zeros, uniforms)
        accepted = ddtree.accept_greedy(tree, chosen)
        ddtree.compact_slots(table, slots[0], accepted)
        return ddtree.gather_rows(hidden, accepted)

    us = time_us([partial(step, *pair) for pair in zip(drafts, targets, strict=True)])
    size = (drafts[0].numel() + targets[0].numel()) * 2
    return Row("whole step", f"batch {batch} budget {nodes - 1}, all but the models", us, size / bandwidth, "bytes")
