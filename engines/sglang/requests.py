"""SGLang's own /generate: what an OpenAI chat request becomes, and its stream as chunks of a chat completion.

The OpenAI endpoint of 0.5.17 refuses token ids and request figures while it streams; /generate has both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from engines.base import EngineError, Ranking, SpecCounters

_RANKED = 5
_SAMPLING = {"max_tokens": "max_new_tokens", "seed": "sampling_seed"}
"""OpenAI's names where SGLang has others."""

_INTEGER = 2**63
"""What SGLang's JSON can hold."""

Json = Mapping[str, Any]


def check_tokenizer(target: str) -> None:
    """Raise EngineError for a model whose prompts SGLang (0.5.17, 0.5.23) cannot tokenize over HTTP: it answers with
    the tokenizer's length limit, which transformers puts at 1e30 where the model names none, and fails on that.
    """
    path = Path(target) / "tokenizer_config.json"
    if not path.is_file():
        return
    limit = json.loads(path.read_text(encoding="utf-8")).get("model_max_length", _INTEGER)
    if not isinstance(limit, (int, float)) or limit >= _INTEGER:
        raise EngineError(f"{path} has no model_max_length, without which SGLang's /v1/tokenize fails; set it there")


def tokenize_body(chat: Json) -> dict[str, Any]:
    """Ask for the prompt's token ids by the server's own chat template, as its chat endpoint would apply it."""
    return {"model": chat["model"], "messages": chat["messages"]}


def token_ids(answer: Json) -> list[int]:
    try:
        return [int(token) for token in answer["tokens"]]
    except (KeyError, TypeError, ValueError) as error:
        raise EngineError(f"SGLang's tokens cannot be read: {answer!r:.200}") from error


def generate_body(chat: Json, prompt: Sequence[int]) -> dict[str, Any]:
    names = ("max_tokens", "temperature", "top_p", "top_k", "seed")
    sampling = {_SAMPLING.get(name, name): chat[name] for name in names if name in chat}
    return {"input_ids": list(prompt), "sampling_params": sampling, "stream": True}


def chunk(event: Json) -> dict[str, Any]:
    """One event of the stream in OpenAI's shape; the last one holds usage and keeps `meta_info`."""
    if "error" in event:
        return dict(event)
    try:
        told = event["meta_info"]
        finish = told["finish_reason"]
        if finish is not None and finish["type"] == "abort":
            return {"error": {"message": str(finish.get("message") or "the request was aborted")}}
        reason = None if finish is None else finish["type"]
        choice = {"index": 0, "delta": {"content": event["text"]}, "token_ids": event["output_ids"]}
        shaped: dict[str, Any] = {"choices": [choice | {"finish_reason": reason}]}
        return shaped if finish is None else shaped | {"usage": _usage(told), "meta_info": told}
    except (KeyError, TypeError, AttributeError) as error:
        raise EngineError(f"an event of SGLang's stream cannot be read: {event!r:.200}") from error


def _usage(told: Json) -> dict[str, Any]:
    prompt, completion = told["prompt_tokens"], told["completion_tokens"]
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return counts | {"prompt_tokens_details": {"cached_tokens": told["cached_tokens"]}}


def counters(last: Json) -> SpecCounters:
    """From the last chunk. Without verify steps the request was decoded plainly, or ended with its prefill.

    SGLang counts what a step accepted before it cuts the answer at max_tokens or a stop token, as vLLM does.
    """
    try:
        told = last["meta_info"]
        emitted = int(told["completion_tokens"]) - 1
        if "spec_verify_ct" not in told:
            return SpecCounters(verify_steps=emitted, emitted=emitted)
        steps = int(told["spec_verify_ct"])
        return SpecCounters(
            verify_steps=steps,
            drafted=_drafted(told, steps),
            accepted=int(told["spec_num_correct_drafts"]),
            emitted=emitted,
            accepted_by_depth=_deeper([int(count) for count in told["spec_correct_drafts_histogram"]]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise EngineError(f"SGLang's meta_info cannot be read: {last!r:.200}") from error


def _drafted(told: Json, steps: int) -> int:
    """Verified tokens without the roots: by the histogram of verified widths where steps tell their own, as our
    plugin's do; else every step has SGLang's one width."""
    widths = told.get("spec_cap_lens_histogram")
    if widths:
        return sum(width * int(count) for width, count in enumerate(widths)) - steps
    return int(told["spec_num_proposed_drafts"])


def _deeper(histogram: list[int]) -> tuple[int, ...]:
    """histogram[j]: steps that accepted exactly j. Result[k]: steps that accepted more than k."""
    return tuple(reversed(list(accumulate(reversed(histogram[1:])))))


def ranking_body(prompt: Sequence[int]) -> dict[str, Any]:
    """One token and its alternatives, by token id."""
    return {
        "input_ids": list(prompt),
        "sampling_params": {"max_new_tokens": 1, "temperature": 0, "ignore_eos": True},
        "return_logprob": True,
        "top_logprobs_num": _RANKED,
    }


def ranking(answer: Json) -> Ranking:
    """The alternatives of that token, best first."""
    try:
        best = sorted(answer["meta_info"]["output_top_logprobs"][0], key=lambda entry: -entry[0])
        return Ranking(tuple(int(entry[1]) for entry in best), tuple(float(entry[0]) for entry in best))
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise EngineError(f"SGLang's log-probabilities cannot be read: {answer!r:.200}") from error
