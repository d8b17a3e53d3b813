"""requests.parquet: the columns of its rows."""

from __future__ import annotations

import pandas as pd

REQUEST_COLUMNS: dict[str, str] = {
    "prompt_id": "string",
    "task": "string",
    "scheduled": "float64",
    "sent": "float64",
    "first": "float64",
    "last": "float64",
    "first_chunk_tokens": "int64",
    "chunks": "int64",
    "prompt_tokens": "int64",
    "output_tokens": "int64",
    "finish_reason": "string",
    "verify_steps": "int64",
    "drafted": "int64",
    "accepted": "int64",
    "emitted": "int64",
    "accepted_by_depth": "object",
    "cached_tokens": "int64",
    "token_ids": "object",
    "prompt_token_ids": "object",
    "text": "string",
    "error": "string",
    "chunk_times": "object",
    "chunk_tokens": "object",
    "coalesced": "int64",
}
"""requests.parquet: one row a request. Times are seconds on the trial's monotonic clock; NaN for what never came.

`chunk_times` and `chunk_tokens` hold the arrival and the token ids of each content chunk; `coalesced` counts the chunks
that came in one read with the one before them.
"""


def request_frame(rows: list[dict[str, object]]) -> pd.DataFrame:
    """Rows with exactly REQUEST_COLUMNS as a typed frame; empty for no rows."""
    return pd.DataFrame(rows, columns=list(REQUEST_COLUMNS)).astype(REQUEST_COLUMNS)
