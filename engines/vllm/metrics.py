"""vLLM's Prometheus page, read.

vLLM counts a draft's accepted tokens before it cuts an answer at max_tokens or a stop token, so the last step of an
answer may count more than it emitted; the reference engine counts after the cut. Its `num_drafts` are the steps that
verified a draft: where n-gram lookup found nothing, a step is no draft and in none of the counters but `emitted`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from engines.base import EngineError, SpecCounters

_SAMPLE = re.compile(r"(?P<name>[\w:]+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_POSITION = re.compile(r'position="(\d+)"')
_TOKENS = "vllm:generation_tokens_total"
_ANSWERS = "vllm:time_to_first_token_seconds_count"
_DRAFTS = "vllm:spec_decode_num_drafts_total"
_DRAFTED = "vllm:spec_decode_num_draft_tokens_total"
_ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
_ACCEPTED_AT = "vllm:spec_decode_num_accepted_tokens_per_pos_total"


def counters(page: str) -> SpecCounters:
    """The counters since the server started. Every answer's first token is its prefill's.

    EngineError where a counter is missing: another name in another version must not pass for zero.
    """
    emitted = _total(page, _TOKENS) - _total(page, _ANSWERS)
    if _DRAFTS not in page:
        return SpecCounters(verify_steps=emitted, emitted=emitted)
    return SpecCounters(
        verify_steps=_total(page, _DRAFTS),
        drafted=_total(page, _DRAFTED),
        accepted=_total(page, _ACCEPTED),
        emitted=emitted,
        accepted_by_depth=_by_position(page),
    )


def _total(page: str, name: str) -> int:
    values = [value for _, value in _samples(page, name)]
    if not values:
        raise EngineError(f"vLLM's /metrics has no {name}")
    return round(sum(values))


def _by_position(page: str) -> tuple[int, ...]:
    found: dict[int, float] = {}
    for labels, value in _samples(page, _ACCEPTED_AT):
        match = _POSITION.search(labels)
        if match is None:
            raise EngineError(f"vLLM's {_ACCEPTED_AT} has no position: {labels:.100}")
        found[int(match[1])] = found.get(int(match[1]), 0.0) + value
    return tuple(round(found.get(position, 0.0)) for position in range(max(found, default=-1) + 1))


def _samples(page: str, name: str) -> Iterator[tuple[str, float]]:
    """(labels, value) of every sample of that name."""
    for line in page.splitlines():
        match = _SAMPLE.fullmatch(line) if line.startswith(name) else None
        if match is not None and match["name"] == name:
            yield match["labels"] or "", float(match["value"])
