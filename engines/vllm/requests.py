"""What vLLM tells of one request: its drafts, and the best next tokens."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from engines.base import EngineError, Ranking, SpecCounters

_RANKED = 5
_TOKEN_ID = "token_id:"  # noqa: S105 - vLLM's prefix for a token


def counters(chunk: Mapping[str, Any]) -> SpecCounters | None:
    """From the usage chunk of a stream; None where this version or this method does not tell (plain decoding)."""
    told = (chunk.get("metrics") or {}).get("speculative_decoding")
    if told is None:
        return None
    try:
        histogram = [int(steps) for steps in told["acceptance_histogram"]]
        return SpecCounters(
            verify_steps=int(told["num_spec_steps"]),
            drafted=int(told["num_draft_tokens"]),
            accepted=int(told["num_accepted_draft_tokens"]),
            emitted=int(chunk["usage"]["completion_tokens"]) - 1,
            accepted_by_depth=_deeper(histogram),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise EngineError(f"metrics.speculative_decoding cannot be read: {told!r:.200}") from error


def _deeper(histogram: list[int]) -> tuple[int, ...]:
    """histogram[j]: steps that accepted exactly j. Result[k]: steps that accepted more than k."""
    return tuple(reversed(list(accumulate(reversed(histogram[1:])))))


def ranking_body(model: str, token_ids: list[int]) -> dict[str, Any]:
    """A completion of one token whose alternatives come by token id: as texts, two of them may be one."""
    return {
        "model": model,
        "prompt": token_ids,
        "max_tokens": 1,
        "temperature": 0,
        "ignore_eos": True,
        "logprobs": _RANKED,
        "return_tokens_as_token_ids": True,
    }


def ranking(answer: Mapping[str, Any]) -> Ranking:
    """The alternatives of that completion, best first."""
    try:
        alternatives: dict[str, float] = answer["choices"][0]["logprobs"]["top_logprobs"][0]
        best = sorted(alternatives.items(), key=lambda item: -item[1])
        ids = tuple(int(token.removeprefix(_TOKEN_ID)) for token, _ in best)
        return Ranking(ids, tuple(float(log_prob) for _, log_prob in best))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise EngineError(f"vLLM's log-probabilities cannot be read: {answer!r:.200}") from error
