"""SGLang's Prometheus page, read.

It counts requests, their tokens and their verify steps when they finish, in the process that answers. It has no
counter of drafted or accepted tokens: those come from the requests alone. Its `spec_accept_rate` divides by all nodes
of a tree, and says nothing.
"""

from __future__ import annotations

import re

from engines.base import EngineError, SpecCounters

_SAMPLE = re.compile(r"(?P<name>[\w:]+)(?:\{.*\})? (?P<value>\S+)")
_TOKENS = "sglang:generation_tokens_total"
_ANSWERS = "sglang:num_requests_total"
_STEPS = "sglang:spec_verify_calls_total"


def counters(page: str, speculative: bool) -> SpecCounters:
    """Steps and tokens since the server started. Every answer's first token is its prefill's.

    EngineError before the first answer, and where a counter is missing: another name must not pass for zero.
    """
    emitted = _total(page, _TOKENS) - _total(page, _ANSWERS)
    return SpecCounters(verify_steps=_total(page, _STEPS) if speculative else emitted, emitted=emitted)


def _total(page: str, name: str) -> int:
    matches = (_SAMPLE.fullmatch(line) for line in page.splitlines() if line.startswith(name))
    values = [float(match["value"]) for match in matches if match is not None and match["name"] == name]
    if not values:
        raise EngineError(f"SGLang's /metrics has no {name}")
    return round(sum(values))
