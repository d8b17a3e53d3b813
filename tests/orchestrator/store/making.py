import pandas as pd

from engines.base import SpecCounters
from orchestrator.records import TrialState, request_frame
from orchestrator.store import RunStore
from tests.orchestrator.sample import trial_record

DIGEST = "ab" * 32


def request(prompt_id: str) -> dict[str, object]:
    numbers = dict.fromkeys(("scheduled", "sent", "first", "last"), 0.5)
    counts = dict.fromkeys(
        ("first_chunk_tokens", "chunks", "prompt_tokens", "output_tokens", "verify_steps", "drafted", "accepted"), 2
    )
    rest = {"emitted": 1, "cached_tokens": 0, "accepted_by_depth": [1, 0], "token_ids": [5, 6], "prompt_token_ids": [1]}
    words = {"prompt_id": prompt_id, "task": "chat", "finish_reason": "stop", "text": "é", "error": ""}
    chunks = {"chunk_times": [0.5, 0.75], "chunk_tokens": [1, 1], "coalesced": 0}
    return numbers | counts | rest | words | chunks


def write(store: RunStore, digest: str = DIGEST, state: TrialState = TrialState.VALID, prompt: str = "p1") -> None:
    frame = request_frame([request(prompt)])
    store.trials.write(
        trial_record(digest, state=state), frame, pd.DataFrame({"time": [0.0]}), SpecCounters(2, 3), None, b"log"
    )
