"""Answers that end before their length, at a string or at a token, whole and streamed: a step that accepts several
tokens may run past the end, and none of what lies behind it may be seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.sglang.servers import Server

AT_ONCE = 16
FIRST, LENGTH = 20, 4
"""Characters of a text before the string that it is to stop at, and of that string."""


def stopped(up: Mapping[str, Server], prompts: Sequence[list[int]], tokens: int) -> dict[str, Any]:
    """Of each server but `ar`: how many answers end as plain decoding's do when both are to stop within their text,
    among the prompts to which both have the same long enough answer.
    """
    whole = {name: server.generate_all(prompts, tokens, AT_ONCE) for name, server in up.items()}
    plain = whole.pop("ar")
    found = {}
    for name, answers in whole.items():
        pairs = zip(prompts, plain, answers, strict=True)
        same = [(prompt, a) for prompt, a, b in pairs if a["output_ids"] == b["output_ids"] and _long(a)]
        found[name] = {"compared": len(same)} | {
            kind: sum(_alike(up["ar"], up[name], prompt, tokens, _stop(kind, answer)) for prompt, answer in same)
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


def _alike(plain: Server, other: Server, prompt: list[int], tokens: int, stop: Mapping[str, Any]) -> bool:
    """Whether both end there, with the same text and tokens, and the other's stream says the same."""
    a, b = (server.generate(prompt, tokens, **stop) for server in (plain, other))
    ended = all(answer["meta_info"]["finish_reason"]["type"] == "stop" for answer in (a, b))
    streamed = "".join(piece["text"] for piece in other.pieces(prompt, tokens, **stop))
    return ended and (a["text"], a["output_ids"]) == (b["text"], b["output_ids"]) and streamed == b["text"]
