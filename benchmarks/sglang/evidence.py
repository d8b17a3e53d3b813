"""What is looked at in the answers of servers: texts, their first differences, widths."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.sglang.servers import Server, acceptance_length

ALONE = 120
"""Prompts that plain decoding answers once more, one at a time."""
_RETRACTION = re.compile(r"Retract requests|Testing retraction")

Answers = list[dict[str, Any]]


def greedy(up: Mapping[str, Server], prompts: Sequence[list[int]], sets: Sequence[str], tokens: int) -> dict[str, Any]:
    """Every server's texts against those of `ar`, and those of `ar` against its own at another batch size."""
    with ThreadPoolExecutor(len(up)) as pool:
        every = dict(zip(up, pool.map(lambda one: one.generate_all(prompts, tokens, 16), up.values()), strict=True))
    plain = every.pop("ar")
    alone = up["ar"].generate_all(prompts[:ALONE], tokens, 1)
    found: dict[str, Any] = {"prompts": len(prompts), "ar at concurrency 1": _against(up["ar"], prompts, plain, alone)}
    for name, answers in every.items():
        own = [answer for answer, data in zip(answers, sets, strict=True) if data == "orchestrate"]
        found[name] = _against(up["ar"], prompts, plain, answers) | {
            "acceptance_length": acceptance_length(answers),
            "own_prompts": {"acceptance_length": acceptance_length(own), "verify_steps": _steps(own)},
            "verify_steps": _steps(answers),
            "retractions": len(_RETRACTION.findall(up[name].text)),
        }
    if "dflash" in every and "chain" in every:
        pairs = zip(every["dflash"], every["chain"], strict=True)
        found["chain_takes_dflash_steps"] = sum(_steps([a]) == _steps([b]) for a, b in pairs)
    return found


def _against(server: Server, prompts: Sequence[list[int]], plain: Answers, answers: Answers) -> dict[str, Any]:
    """How many of these answers are plain decoding's, and where the others part from it."""
    pairs = list(zip(plain, answers, strict=False))
    parted = [i for i, (a, b) in enumerate(pairs) if a["output_ids"] != b["output_ids"]]
    places = [{"prompt": i, **_parting(server, prompts[i], *pairs[i])} for i in parted]
    return {"compared": len(pairs), "equal": len(pairs) - len(parted), "parted": places}


def _steps(answers: Answers) -> int:
    return sum(answer["meta_info"]["spec_verify_ct"] for answer in answers)


def _parting(plain: Server, prompt: list[int], one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Where two answers part, and how far the other's token lies below the best, by plain decoding's own logits."""
    a, b = one["output_ids"], other["output_ids"]
    place = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    if place >= min(len(a), len(b)):
        return {"place": place, "gap": None}
    body = {
        "input_ids": [*prompt, *a[:place]],
        "sampling_params": {"max_new_tokens": 1, "temperature": 0},
        "return_logprob": True,
        "top_logprobs_num": 5,
    }
    ranked = {entry[1]: entry[0] for entry in plain.post("/generate", body)["meta_info"]["output_top_logprobs"][0]}
    return {"place": place, "gap": max(ranked.values()) - ranked.get(b[place], float("-inf"))}


def widths_taken(server: Server, prompts: Sequence[list[int]]) -> dict[str, Any]:
    """Which widths the automatic policy takes alone and in company."""
    found = {}
    for concurrency in (1, 4, 8, 16, 32):
        answers = server.generate_all(prompts, 48, concurrency)
        widths = Counter[int]()
        for answer in answers:
            widths.update(dict(enumerate(answer["meta_info"].get("spec_cap_lens_histogram") or [])))
        taken = {str(width): steps for width, steps in sorted(widths.items()) if steps}
        found[str(concurrency)] = {"steps_by_width": taken, "acceptance_length": acceptance_length(answers)}
    return found
