"""Pauses: a trial's answers stand still together for so long that its speed is another one.

The garbage collector of an engine's HTTP process takes half a second with 32 answers under way. That is the engine's
own, so the trial counts; but in a window of a second it halves the tokens per second.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from orchestrator.records import Pause

TIMES = 3.0
"""A pause lasts more than so many usual waits."""

SHARE = 0.1
"""A pause takes more than this of the trial's window."""

LEAST_S = 0.05
"""Below this it need not be the engine: a busy machine holds up any process so long."""

_USUAL = 90
"""The percentile of a trial's waits that is the usual one. A pause is one wait of each request under way, which are too
few to make it the usual one."""


def pause(requests: pd.DataFrame, window: tuple[float, float]) -> Pause | None:
    """The longest silence of one trial's `requests` in its window, if it is a pause by TIMES, SHARE and LEAST_S.

    Requests without stored chunk times say nothing; None where there are no others.
    """
    sent, chunks = _chunks(requests)
    if not chunks:
        return None
    seconds, whole = longest_silence(chunks, window), window[1] - window[0]
    if seconds <= max(LEAST_S, SHARE * whole, TIMES * _usual_wait(sent, chunks)):
        return None
    return Pause(seconds=seconds, window=whole)


def longest_silence(chunks: Sequence[NDArray[np.float64]], window: tuple[float, float]) -> float:
    """The longest time inside the window, in seconds, in which answers were under way and no chunk came of any.

    `chunks` are the arrivals of each answer's chunks, in order. An answer is under way from its first chunk to its
    last: while no request has more than its prompt read, nothing can arrive, and TTFT tells how long that was.
    """
    arrivals = np.sort(np.concatenate(chunks))
    begun = np.searchsorted(np.sort([times[0] for times in chunks]), arrivals, side="right")
    ended = np.searchsorted(np.sort([times[-1] for times in chunks]), arrivals, side="right")
    silences = np.diff(np.clip(arrivals, *window))[(begun > ended)[:-1]]
    return float(silences.max(initial=0.0))


def _chunks(requests: pd.DataFrame) -> tuple[list[float], list[NDArray[np.float64]]]:
    """Send time and chunk times of each request of which chunks are stored."""
    if "chunk_times" not in requests:
        return [], []
    stored = requests.dropna(subset="chunk_times")
    pairs = [(sent, times) for sent, times in zip(stored["sent"], stored["chunk_times"], strict=True) if len(times)]
    return [float(sent) for sent, _ in pairs], [np.asarray(times, dtype=float) for _, times in pairs]


def _usual_wait(sent: Sequence[float], chunks: Sequence[NDArray[np.float64]]) -> float:
    """The longer one of the usual wait for a first chunk, since answers also wait for another's prompt to be read,
    and the usual wait between two chunks."""
    first = [times[0] - at for at, times in zip(sent, chunks, strict=True)]
    between = np.concatenate([np.diff(times) for times in chunks])
    return max(float(np.percentile(waits, _USUAL)) for waits in (first, between) if len(waits))
