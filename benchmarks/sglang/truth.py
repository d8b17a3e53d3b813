"""`python -m benchmarks.sglang.truth --target T --drafter D --prompts P --out FILE`: do trees change what is said?

In float16, greedy, every arm's token ids must be those of plain decoding on the same SGLang: chain, trees, and a tree
under hard conditions (radix cache, pages of 64, chunked prefill, a KV pool so small that requests are retracted). The
chain must take DFlash's very steps. In bfloat16, sampled: tokens after a tree step have plain sampling's distribution.
A corrupted or stale mask must keep the server from serving. A load of mixed lengths and aborts must leak nothing.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from scipy.stats import chi2_contingency

from benchmarks.sglang.servers import Place, Server, acceptance_length, arm, write
from benchmarks.sglang.soak import soak

HARD = (
    "--mem-fraction-static",
    "0.8",
    "--max-total-tokens",
    "6144",
    "--page-size",
    "64",
    "--chunked-prefill-size",
    "64",
    "--sleep-on-idle",
)
FAULTS = [(fault, attention) for attention in ("kernel", "stock") for fault in ("skip", "corrupt")]
FAULTY = Path(__file__).with_name("faults").resolve()
"""A plugin that spoils the mask: only on these servers' paths."""
SAMPLED = 3000
"""Answers of each arm for the test of the distribution."""

Answers = list[dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("target", "drafter", "prompts", "out", "logs"):
        parser.add_argument(f"--{name}", required=True, type=Path)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--soak", type=float, default=60, help="seconds of mixed load")
    options = parser.parse_args()
    rows = json.loads(options.prompts.read_text())
    exact = Place(str(options.target), str(options.drafter), "float16", options.logs)
    half = Place(str(options.target), str(options.drafter), "bfloat16", options.logs)
    hard = Place(str(options.target), str(options.drafter), "float16", options.logs, arguments=HARD)
    ports = iter(range(31000, 32000, 20))
    servers = {
        "ar": Server(arm("ar"), exact, next(ports)),
        "dflash": Server(arm("dflash"), exact, next(ports)),
        "chain": Server(arm("chain", 7, chain=True), exact, next(ports)),
        "tree-15": Server(arm("tree-15", 15), exact, next(ports)),
        "tree-63": Server(arm("tree-63", 63), exact, next(ports)),
        "hard": Server(arm("hard", 31, radix_cache=True), hard, next(ports)),
        "sampled-ar": Server(arm("ar"), half, next(ports)),
        "sampled-tree": Server(arm("tree", 31), half, next(ports)),
        "auto": Server(arm("auto", 63, policy="auto"), half, next(ports)),
    }
    extra = {"PYTHONPATH": os.pathsep.join(filter(None, [str(FAULTY), os.environ.get("PYTHONPATH")]))}
    broken = {
        (fault, attention): Server(
            arm(f"{fault}-{attention}", 15, attention=attention),
            half,
            next(ports),
            extra | {"DDTREE_FAULT": fault, "SGLANG_PLUGINS": "ddtree,ddtree_fault"},
        )
        for fault, attention in FAULTS
    }
    results: dict[str, Any] = {"tokens": options.tokens}
    try:
        results["dead"] = {name: one.death() for name, one in servers.items() if not one.ready(300)}
        print("dead:", results["dead"], flush=True)
        up = {name: one for name, one in servers.items() if name not in results["dead"]}
        steps: dict[str, Callable[[], Any]] = {
            "faults": lambda: {
                f"{fault} {attention}": {"served": one.ready(300), "why": _self_check_line(one.text)}
                for (fault, attention), one in broken.items()
            },
            "greedy": lambda: _greedy(up, [row["ids"] for row in rows], [row["set"] for row in rows], options.tokens),
            "sampled": lambda: _sampled(up, rows[0]["ids"]),
            "auto": lambda: _auto(up, [row["ids"] for row in rows[:80]]),
            "soak": lambda: soak(up["tree-63"], [row["ids"] for row in rows], options.soak),
        }
        for name, step in steps.items():
            try:
                results[name] = step()
            except Exception as error:  # the other steps are worth their GPU time
                results[name] = {"failed": repr(error)}
            print(name, json.dumps(results[name])[:1500], flush=True)
            write(options.out, results)
    finally:
        for server in [*servers.values(), *broken.values()]:
            server.stop()


def _self_check_line(log: str) -> str:
    lines = [line for line in log.splitlines() if "self-check" in line]
    return lines[-1][-300:] if lines else "no word of a self-check"


def _greedy(up: Mapping[str, Server], prompts: Sequence[list[int]], sets: Sequence[str], tokens: int) -> dict[str, Any]:
    names = [name for name in ("ar", "dflash", "chain", "tree-15", "tree-63", "hard") if name in up]
    with ThreadPoolExecutor(len(names)) as pool:
        every = dict(zip(names, pool.map(lambda name: up[name].generate_all(prompts, tokens, 16), names), strict=True))
    plain = every["ar"]
    found: dict[str, Any] = {"prompts": len(prompts)}
    for name, answers in every.items():
        if name != "ar":
            parted = [
                i for i, (a, b) in enumerate(zip(plain, answers, strict=True)) if a["output_ids"] != b["output_ids"]
            ]
            own = [answer for answer, data in zip(answers, sets, strict=True) if data == "orchestrate"]
            found[name] = {
                "equal": len(prompts) - len(parted),
                "parted": [{"prompt": i, **_parting(up["ar"], prompts[i], plain[i], answers[i])} for i in parted[:10]],
                "acceptance_length": acceptance_length(answers),
                "own_prompts": {"acceptance_length": acceptance_length(own), "verify_steps": _steps(own)},
                "verify_steps": _steps(answers),
                "retracted": up[name].text.count("Retract requests") if name == "hard" else None,
            }
    if "dflash" in every and "chain" in every:
        pairs = [
            (a["meta_info"]["spec_verify_ct"], b["meta_info"]["spec_verify_ct"])
            for a, b in zip(every["dflash"], every["chain"], strict=True)
        ]
        found["chain_takes_dflash_steps"] = sum(a == b for a, b in pairs)
    return found


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


def _sampled(up: Mapping[str, Server], prompt: list[int]) -> dict[str, Any]:
    """Second to fourth tokens of many answers to one prompt: two samples, one distribution?"""
    sampling = {"temperature": 1.0, "top_p": 0.95, "top_k": 40}
    names = ("sampled-ar", "sampled-tree")
    drawn = {
        name: [tuple(one["output_ids"]) for one in up[name].generate_all([prompt] * SAMPLED, 4, 32, **sampling)]
        for name in names
    }
    found: dict[str, Any] = {"answers": SAMPLED, **sampling}
    for label, part in (
        ("token 2", slice(1, 2)),
        ("token 3", slice(2, 3)),
        ("token 4", slice(3, 4)),
        ("tokens 1-2", slice(0, 2)),
    ):
        counts = [Counter(answer[part] for answer in drawn[name]) for name in names]
        found[label] = _same(counts)
    return found


def _same(counts: Sequence[Counter[Any]]) -> dict[str, float]:
    """Chi-square of two samples; what is seen fewer than ten times in both together is one class."""
    common = [key for key, total in (counts[0] + counts[1]).items() if total >= 10]
    table = [[one[key] for key in common] + [sum(n for key, n in one.items() if key not in common)] for one in counts]
    columns = [i for i in range(len(common) + 1) if table[0][i] + table[1][i]]
    result = chi2_contingency([[row[i] for i in columns] for row in table])
    return {"classes": len(columns), "p": float(result.pvalue)}


def _auto(up: Mapping[str, Server], prompts: Sequence[list[int]]) -> dict[str, Any]:
    """Which widths the automatic policy takes alone and in company."""
    found = {}
    for concurrency in (1, 8, 32):
        answers = up["auto"].generate_all(prompts, 48, concurrency)
        widths = Counter[int]()
        for answer in answers:
            widths.update(dict(enumerate(answer["meta_info"].get("spec_cap_lens_histogram") or [])))
        taken = {str(width): steps for width, steps in sorted(widths.items()) if steps}
        found[str(concurrency)] = {"steps_by_width": taken, "acceptance_length": acceptance_length(answers)}
    return found


if __name__ == "__main__":
    main()
