"""Answers that end before their length, at a string or at a token, whole and streamed: a step that accepts several
tokens may run past the end, and none of what lies behind it may be seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.sglang.servers import Server

AT_ONCE = 16
FIRST, LENGTH = 20, 4
"""Characters of a text before the string that it is to stop at, and of that string."""


def stopped(up: Mapping[str, Server], prompts: Sequence[list[int]], tokens: int) -> dict[str, Any]:
    """Of each server but `ar`: how answers end that are to stop within their text, beside plain decoding's, among the
    prompts to which both had the same long enough answer. Asked alone, both may fall otherwise at a near-tie, which is
    not looked into: `other tokens` before the shorter one's end, or the stop `not reached` by either. `other end` is a
    fault: where one stops the other goes on, or its stream or its text says something else.
    """
    whole = {name: server.generate_all(prompts, tokens, AT_ONCE) for name, server in up.items()}
    plain = whole.pop("ar")
    found = {}
    for name, answers in whole.items():
        pairs = zip(prompts, plain, answers, strict=True)
        same = [(prompt, a) for prompt, a, b in pairs if a["output_ids"] == b["output_ids"] and _long(a)]
        found[name] = {"compared": len(same)} | {
            kind: Counter(_end(up["ar"], up[name], prompt, tokens, _stop(kind, answer)) for prompt, answer in same)
            for kind in ("string", "token")
        }
    return found


def _long(answer: Mapping[str, Any]) -> bool:
    return len(answer["text"]) >= FIRST + LENGTH and len(answer["output_ids"]) > 2


def _stop(kind: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    ids = answer["output_ids"]
    if kind == "token":
        return {"stop_token_ids": [ids[len(ids) // 2]]}
    return {"stop": [answer["text"][FIRST : FIRST + LENGTH]]}


def _end(plain: Server, other: Server, prompt: list[int], tokens: int, stop: Mapping[str, Any]) -> str:
    """How the other's answer and stream end, beside plain decoding's."""
    a, b = (server.generate(prompt, tokens, **stop) for server in (plain, other))
    if any(x != y for x, y in zip(a["output_ids"], b["output_ids"], strict=False)):
        return "other tokens"
    streamed = "".join(piece["text"] for piece in other.pieces(prompt, tokens, **stop))
    if (a["text"], a["output_ids"]) != (b["text"], b["output_ids"]) or streamed != b["text"]:
        return "other end"
    reasons = {answer["meta_info"]["finish_reason"]["type"] for answer in (a, b)}
    return {("stop",): "alike", ("length",): "not reached"}.get(tuple(reasons), "other end")
