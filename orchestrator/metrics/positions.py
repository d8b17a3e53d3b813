"""Acceptance by task, depth and how much of the answer was there already: it falls as answers grow."""

from __future__ import annotations

import numpy as np
import pandas as pd

from orchestrator.metrics.requests import measure
from orchestrator.outputs import PositionCell
from orchestrator.statistics import Floats, Ints

EDGES = (0, 256, 1024, 4096)
"""Where the stretches of an answer begin, in output tokens."""


def by_position(requests: pd.DataFrame) -> list[PositionCell]:
    """A cell for each arm that drafted, concurrency, task and stretch with a verify step in it.

    A content chunk after the first is one verify step's tokens. Requests whose chunks are not their steps (a server
    that sends several at once) are left out.
    """
    if requests.empty or "chunk_tokens" not in requests:
        return []
    measured = measure(requests)
    stepwise = measured[measured["ok"] & (measured["drafted"] > 0)]
    cells = []
    for (arm, concurrency, task), rows in stepwise.groupby(["arm", "concurrency", "task"], sort=True):
        starts, tokens = _steps(rows)
        place = np.searchsorted(EDGES, starts, side="right") - 1
        for stretch in np.unique(place):
            own = tokens[place == stretch]
            cells.append(_cell(str(arm), int(str(concurrency)), str(task), int(stretch), own))
    return cells


def _steps(rows: pd.DataFrame) -> tuple[Ints, Floats]:
    """Of every verify step: how many tokens were out before it, and how many it gave out."""
    starts, tokens = [np.zeros(0, dtype=np.int64)], [np.zeros(0)]
    for chunks, steps in zip(rows["chunk_tokens"], rows["verify_steps"], strict=True):
        if not isinstance(chunks, list | np.ndarray):
            continue  # a run of before chunks were stored
        sizes = np.asarray(chunks, dtype=np.int64)
        if len(sizes) == steps + 1:
            starts.append(np.cumsum(sizes)[:-1])
            tokens.append(sizes[1:].astype(float))
    return np.concatenate(starts), np.concatenate(tokens)


def _cell(arm: str, concurrency: int, task: str, stretch: int, tokens: Floats) -> PositionCell:
    deepest = int(tokens.max())
    return PositionCell(
        arm=arm,
        concurrency=concurrency,
        task=task,
        start=EDGES[stretch],
        end=EDGES[stretch + 1] if stretch + 1 < len(EDGES) else None,
        steps=len(tokens),
        acceptance_length=float(tokens.mean()),
        by_depth=[float((tokens > depth).mean()) for depth in range(1, deepest)],
    )
