"""Builders and slow, obvious oracles that the tests compare with.

Kernel tests run on a GPU where there is one, else under Triton's interpreter, which must be chosen before Triton is
imported.
"""

import heapq
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import ddtree
from ddtree import dispatch

GPU = torch.cuda.is_available()


def _use_interpreter() -> None:
    os.environ["TRITON_INTERPRET"] = "1"
    from triton.runtime import interpreter

    patch_tensor = interpreter._patch_lang_tensor

    def patch(tensor: Any, scope: Any) -> None:
        patch_tensor(tensor, scope)
        # NumPy 2.4 no longer takes int() of an array of one element, which Triton 3.6 does for loop bounds.
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    interpreter._patch_lang_tensor = patch


if not GPU:
    _use_interpreter()

Oracle = Callable[[np.ndarray, int, bool], list[tuple[int, int, int, np.float32]]]


def best_first(log_probs: np.ndarray, budget: int, chain: bool) -> list[tuple[int, int, int, np.float32]]:
    """(parent, depth, rank, score) of nodes 1.. by a plain heap that pushes every child of what it pops."""
    clean = np.minimum(np.where(np.isnan(log_probs), -np.inf, log_probs), 0).astype(np.float32)
    spine = _spine(clean, budget) if chain else set()
    order, heap = [], []
    _push_children(heap, clean, np.float32(0), 0, 0, ())
    fill = budget - len(spine)
    while heap and (fill > 0 or any(path not in {o[4] for o in order} for path in spine)):
        cost, depth, parent, rank, path = heapq.heappop(heap)
        if path not in spine:
            if fill == 0:
                # Later than the fill: not a node, and nothing below it can be one.
                continue
            fill -= 1
        order.append((parent, depth, rank, np.float32(-cost), path))
        _push_children(heap, clean, np.float32(-cost), depth, len(order), path)
    return [node[:4] for node in order]


def _spine(clean: np.ndarray, budget: int) -> set[tuple[int, ...]]:
    spine, total = set(), np.float32(0)
    for depth in range(min(len(clean), budget)):
        total = np.float32(total + clean[depth, 0])
        if total == -np.inf:
            break
        spine.add((0,) * (depth + 1))
    return spine


def _push_children(heap, clean, score, depth, index, path) -> None:
    if depth < len(clean):
        for rank, value in enumerate(clean[depth]):
            total = np.float32(score + value)
            if total > -np.inf:
                heapq.heappush(heap, (-float(total), depth + 1, index, rank, (*path, rank)))


@pytest.fixture(scope="session")
def plain_heap() -> Oracle:
    return best_first


@pytest.fixture(scope="session")
def random_log_probs() -> Callable[[np.random.Generator, int, int], np.ndarray]:
    """[D,K] rows, non-increasing, of one of several kinds, most of them full of ties."""

    def draw(rng: np.random.Generator, depth: int, k: int) -> np.ndarray:
        kind = rng.integers(7)
        rows = rng.exponential(2.0, (depth, k))
        if kind == 1:  # quantised
            rows = np.round(rows * 2) / 2
        elif kind == 2:  # all equal
            rows[:] = np.log(k)
        elif kind == 3:  # certain tokens
            rows = np.where(rng.random((depth, k)) < 0.5, 0.0, np.round(rows))
        elif kind == 4:  # impossible tokens
            rows = np.where(rng.random((depth, k)) < 0.4, np.inf, rows)
        elif kind == 5:  # subnormal and huge together
            rows = rows * 10.0 ** rng.integers(-42, 38, (depth, 1))
        elif kind == 6:  # coarse float sums that round
            rows = np.round(rows, 1) + 1e6 * rng.integers(0, 2, (depth, 1))
        with np.errstate(over="ignore"):
            return -np.sort(rows.astype(np.float32), axis=1)

    return draw


@pytest.fixture
def tree_of() -> Callable[..., ddtree.Tree]:
    """A tree from random log-probs: (seed, batch, depth, k, budget, max_nodes)."""

    def build(seed: int, batch: int, depth: int, k: int, budget: int, max_nodes: int, **options: bool) -> ddtree.Tree:
        generator = torch.Generator().manual_seed(seed)
        logits = torch.randn(batch, depth, 4 * k, generator=generator) * 2
        top = ddtree.topk_logprobs(logits, k)
        roots = torch.arange(batch)
        return ddtree.build_tree(top.log_probs, top.token_ids, roots, budget, max_nodes=max_nodes, **options)

    return build


def _mapped(value: Any, device: str) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if hasattr(value, "__dataclass_fields__"):
        return type(value)(*(_mapped(getattr(value, name), device) for name in value.__dataclass_fields__))
    return value


@pytest.fixture
def by_kernel(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Call a public function with its arguments on the kernels' device; the result comes back to the CPU."""

    def call(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        device = "cuda" if GPU else "cpu"
        with monkeypatch.context() as patch:
            if not GPU:
                patch.setitem(dispatch.PACKAGES, "cpu", "triton")
            moved = [_mapped(argument, device) for argument in arguments]
            result = function(*moved, **{name: _mapped(option, device) for name, option in options.items()})
        return _mapped(result, "cpu")

    return call
