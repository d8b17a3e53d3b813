"""Requests and records with known values, for tests of what is computed from them."""

from __future__ import annotations

from typing import Any

import pandas as pd

from orchestrator.records import REQUEST_COLUMNS, JournalEntry, TrialRecord, TrialState


def request(**changes: Any) -> dict[str, Any]:
    """A request sent at 0 s: first chunk of one token at 1 s, last at 3 s, 11 tokens in 5 verify steps."""
    values: dict[str, Any] = {
        "trial": "t0",
        "arm": "autoregressive",
        "concurrency": 1,
        "block": 0,
        "prompt_id": "chat-01",
        "task": "chat",
        "scheduled": 0.0,
        "sent": 0.0,
        "first": 1.0,
        "last": 3.0,
        "first_chunk_tokens": 1,
        "chunks": 6,
        "chunk_times": [1.0, 1.4, 1.8, 2.2, 2.6, 3.0],
        "chunk_tokens": [1, 2, 2, 2, 2, 2],
        "coalesced": 0,
        "prompt_tokens": 2,
        "output_tokens": 11,
        "finish_reason": "stop",
        "verify_steps": 5,
        "drafted": 15,
        "accepted": 5,
        "emitted": 10,
        "accepted_by_depth": [4, 1],
        "cached_tokens": 0,
        "token_ids": [1, 2, 3],
        "prompt_token_ids": [7, 8],
        "text": "",
        "error": "",
    }
    return values | changes


def failed(**changes: Any) -> dict[str, Any]:
    """A request that got no answer."""
    nothing = {
        "first": float("nan"),
        "last": float("nan"),
        "output_tokens": 0,
        "first_chunk_tokens": 0,
        "token_ids": [],
    }
    counts = {"verify_steps": 0, "drafted": 0, "accepted": 0, "emitted": 0, "accepted_by_depth": []}
    return request(**(nothing | counts | {"finish_reason": "error", "error": "timed out"} | changes))


def frame(*requests: dict[str, Any]) -> pd.DataFrame:
    """As Trials.requests gives them."""
    keys = {"trial": "object", "arm": "object", "concurrency": "int64", "block": "int64"}
    return pd.DataFrame(list(requests)).astype(keys | REQUEST_COLUMNS)


def trial_record(digest: str = "t0", **changes: Any) -> TrialRecord:
    """A valid trial of a second."""
    values: dict[str, Any] = {
        "digest": digest,
        "arm": "arm",
        "concurrency": 1,
        "block": 0,
        "state": TrialState.VALID,
        "slot": "slot-0",
        "identity": {},
        "counters": {},
        "stages": None,
        "warmup_requests": 2,
        "warmup_flat": True,
        "started_at": "",
        "duration": 1.0,
        "window": (0.0, 1.0),
    }
    return TrialRecord(**values | changes)


def journal_entry(trial: str, state: TrialState, slot: str = "slot-0", seconds: float = 0.0) -> JournalEntry:
    return JournalEntry(
        time="2026-03-14T09:00:00+00:00",
        trial=trial,
        arm="arm",
        concurrency=1,
        block=0,
        state=state,
        slot=slot,
        seconds=seconds,
    )
