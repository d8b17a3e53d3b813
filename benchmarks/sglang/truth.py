"""`python -m benchmarks.sglang.truth --target T --drafter D --prompts P --out FILE`: do trees change what is said?

In float16, every arm's greedy token ids must be those of plain decoding on the same SGLang: chain, trees, and a tree
under hard conditions (radix cache, pages of 64, chunked prefill, a small KV pool and requests retracted all the time).
Prompts are prefilled by Triton's kernel, as plain decoding's are, but for the tree of 63 and the hard conditions: by
what SGLang takes on the GPU. The chain must take DFlash's very steps. Sampled, tokens after a tree step have plain
sampling's distribution. Answers that are to stop within a step end where plain decoding's do. A corrupted or stale mask
must keep the server from serving. A load of mixed lengths and aborts must leak nothing.

Parts already in FILE are not run again; each is written as soon as it is there.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.sglang import evidence
from benchmarks.sglang.samples import sampled
from benchmarks.sglang.servers import Place, Server, arm, bring_up, stop_when_told, write
from benchmarks.sglang.soak import soak
from benchmarks.sglang.stops import stopped

HARD = (
    *("--mem-fraction-static", "0.8", "--max-total-tokens", "4096", "--page-size", "64", "--sleep-on-idle"),
    *("--chunked-prefill-size", "64", "--schedule-conservativeness", "0.3"),
)
RETRACTING = {"SGLANG_TEST_RETRACT": "1", "SGLANG_TEST_RETRACT_INTERVAL": "40"}
"""SGLang's own switch: half of a batch or so is retracted at each such step, beside what the small pool makes it do."""
FAULTS = [(fault, attention) for attention in ("kernel", "stock") for fault in ("skip", "corrupt")]
FAULTY = Path(__file__).with_name("faults").resolve()
"""A plugin that spoils the mask: only on these servers' paths."""
NEEDS = {
    "faults": (),
    "greedy": ("ar", "dflash", "chain", "tree-15", "tree-63", "hard"),
    "sampled": ("ar", "tree-15", "tree-63"),
    "auto": ("auto",),
    "stops": ("ar", "dflash", "tree-15", "tree-63"),
    "soak": ("tree-63",),
}
"""The servers of each part. `faults` has its own, which must die."""


def main() -> None:
    options = _options()
    stop_when_told()
    results = json.loads(options.out.read_text()) if options.out.exists() else {}
    todo = [part for part in options.parts if "failed" in results.get(part, {"failed": ""})]
    rows = json.loads(options.prompts.read_text())
    prompts, sets = [row["ids"] for row in rows], [row["set"] for row in rows]
    up = _servers(options, {name for part in todo for name in NEEDS[part]})
    broken = _broken(options) if "faults" in todo else {}
    try:
        dead = bring_up(up, 420, ("ar", "dflash"))
        results |= {"tokens": options.tokens, "dead": dead}
        steps: dict[str, Callable[[dict[str, Server]], Any]] = {
            "faults": lambda _: _faults(broken),
            "greedy": lambda some: evidence.greedy(some, prompts, sets, options.tokens),
            "sampled": lambda some: sampled(some, prompts[0], options.answers),
            "auto": lambda some: evidence.widths_taken(some["auto"], prompts[:80]),
            "stops": lambda some: stopped(some, prompts[:80], options.tokens),
            "soak": lambda some: soak(some["tree-63"], prompts, options.soak),
        }
        for part in todo:
            alive = {name: up[name] for name in NEEDS[part] if name not in dead}
            try:
                results[part] = steps[part](alive)
            except Exception as error:  # the other parts are worth their GPU time
                results[part] = {"failed": repr(error)}
            print(part, json.dumps(results[part])[:1500], flush=True)
            write(options.out, results)
    finally:
        for server in [*up.values(), *broken.values()]:
            server.stop()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("target", "drafter", "prompts", "out", "logs"):
        parser.add_argument(f"--{name}", required=True, type=Path)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--answers", type=int, default=2000, help="of each server to be sampled, each way")
    parser.add_argument("--soak", type=float, default=60, help="seconds of mixed load")
    parser.add_argument("--parts", nargs="+", choices=NEEDS, default=list(NEEDS))
    return parser.parse_args()


def _places(options: argparse.Namespace) -> tuple[Place, Place, Place]:
    """In float16; in bfloat16; in float16 and under hard conditions."""
    shared = {"target": str(options.target), "drafter": str(options.drafter), "logs": options.logs}
    exact, half = Place(dtype="float16", **shared), Place(dtype="bfloat16", **shared)
    return exact, half, Place(dtype="float16", arguments=HARD, **shared)


def _servers(options: argparse.Namespace, wanted: set[str]) -> dict[str, Server]:
    """Those that are wanted, started and not waited for."""
    exact, half, hard = _places(options)
    subjects: dict[str, tuple[Any, Place, Mapping[str, str] | None]] = {
        "ar": (arm("ar"), exact, None),
        "dflash": (arm("dflash"), exact, None),
        "chain": (arm("chain", 7, chain=True), exact, None),
        "tree-15": (arm("tree-15", 15), exact, None),
        "tree-63": (arm("tree-63", 63, prefill_attention_backend=None), exact, None),
        "hard": (arm("hard", 31, radix_cache=True, prefill_attention_backend=None), hard, RETRACTING),
        "auto": (arm("auto", 63, policy="auto"), half, None),
    }
    ports = dict(zip(subjects, range(31000, 32000, 20), strict=False))
    return {
        name: Server(subject, place, ports[name], extra)
        for name, (subject, place, extra) in subjects.items()
        if name in wanted
    }


def _broken(options: argparse.Namespace) -> dict[str, Server]:
    _, half, _ = _places(options)
    path = {"PYTHONPATH": os.pathsep.join(filter(None, [str(FAULTY), os.environ.get("PYTHONPATH")]))}
    return {
        f"{fault} {attention}": Server(
            arm(f"{fault}-{attention}", 15, attention=attention),
            half,
            31500 + 20 * index,
            path | {"DDTREE_FAULT": fault, "SGLANG_PLUGINS": "ddtree,ddtree_fault"},
        )
        for index, (fault, attention) in enumerate(FAULTS)
    }


def _faults(broken: Mapping[str, Server]) -> dict[str, Any]:
    return {name: {"served": one.ready(300), "why": _self_check_line(one.text)} for name, one in broken.items()}


def _self_check_line(log: str) -> str:
    lines = [line for line in log.splitlines() if "self-check" in line]
    return lines[-1][-300:] if lines else "no word of a self-check"


if __name__ == "__main__":
    main()
