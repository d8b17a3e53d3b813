"""The part of a trial in which its load was the one asked for, and the tokens that came in it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from orchestrator.records import TrialRecord


def steady_window(requests: pd.DataFrame, concurrency: int) -> tuple[float, float]:
    """From the first moment of full concurrency to the first slot left idle, in seconds of the trial's clock.

    A closed loop fills a free slot at once. So full concurrency begins with the `concurrency`-th send, and of n
    requests the (n - concurrency + 1)-th to finish is the first with none left to follow it. One at a time, that is
    the whole busy span. A trial shorter than its concurrency counts from its last send to its first end, and one that
    never held full concurrency in whole. Requests that failed mark no edge: their end is not known. ValueError when
    none finished.
    """
    done = _finished(requests)
    if done.empty:
        raise ValueError("no request finished")
    slots = min(concurrency, len(done))
    sent, ends = np.sort(done["sent"].to_numpy(dtype=float)), np.sort(done["last"].to_numpy(dtype=float))
    start, end = float(sent[slots - 1]), float(ends[len(done) - slots])
    return (start, end) if start < end else (float(sent[0]), float(ends[-1]))


def open_window(requests: pd.DataFrame) -> tuple[float, float]:
    """From the first answer's end to the last arrival, in seconds of the trial's clock: in between, requests both come
    and go. A trial whose first answer ended after the last arrival counts in whole. ValueError when none finished.
    """
    done = _finished(requests)
    if done.empty:
        raise ValueError("no request finished")
    start, end = float(done["last"].min()), float(done["scheduled"].max())
    return (start, end) if start < end else (float(done["scheduled"].min()), float(done["last"].max()))


def window_of(record: TrialRecord | None, requests: pd.DataFrame, concurrency: int) -> tuple[float, float]:
    """A trial's window: an open loop's is in its record, a closed loop's can be told from its requests."""
    if record is not None and record.load is not None and record.load.pattern != "closed":
        return record.window
    return steady_window(requests, concurrency)


def tokens_within(requests: pd.DataFrame, window: tuple[float, float]) -> float:
    """Output tokens that came inside the window.

    The first chunk's tokens came when it did, the others evenly until the last. Counting requests that *finished*
    inside instead would drop the part of up to `concurrency` - 1 requests that the window cuts: 14 % of a trial of 12
    requests at concurrency 4.
    """
    done = _finished(requests)
    first, last = done["first"].to_numpy(dtype=float), done["last"].to_numpy(dtype=float)
    chunk = done["first_chunk_tokens"].to_numpy(dtype=float)
    rest = done["output_tokens"].to_numpy(dtype=float) - chunk
    start, end = window
    inside = np.clip(np.minimum(last, end) - np.maximum(first, start), 0.0, None)
    span = last - first
    share = np.divide(inside, span, out=((first >= start) & (first <= end)).astype(float), where=span > 0)
    return float((chunk * ((first >= start) & (first <= end)) + rest * share).sum())


def _finished(requests: pd.DataFrame) -> pd.DataFrame:
    return requests[(requests["error"] == "") & requests["last"].notna()]
