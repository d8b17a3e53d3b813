"""`python -m benchmarks.sglang.reference --target T --drafter D --prompts P --out FILE`: the reference engine's steps.

Greedy, float32, on the CPU, over our own prompts of the prompts file: what `truth` on SGLang is held against.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from engines.reference.decoding.engine import Engine, GenerationRequest, Method, SamplingParams
from engines.reference.model.checkpoint import load_drafter, load_target

METHODS = {"dflash": Method("dflash"), "tree-15": Method("ddtree", 15), "tree-63": Method("ddtree", 63)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("target", "drafter", "prompts", "out"):
        parser.add_argument(f"--{name}", required=True, type=Path)
    parser.add_argument("--tokens", type=int, default=48)
    options = parser.parse_args()
    rows = [row for row in json.loads(options.prompts.read_text()) if row["set"] == "orchestrate"]
    target = load_target(options.target, dtype=torch.float32, device="cpu")
    drafter = load_drafter(options.drafter, target)
    results: dict[str, object] = {"prompts": len(rows), "tokens": options.tokens, "dtype": "float32"}
    for name, method in METHODS.items():
        engine = Engine(target, drafter, method, 1, 1024)
        for row in rows:
            parameters = SamplingParams(max_tokens=options.tokens)
            engine.submit(GenerationRequest(row["id"], tuple(row["ids"]), parameters))
        while engine.has_work():
            engine.step()
        stats = engine.stats()
        length = 1 + stats.accepted / stats.verify_steps
        results[name] = {"acceptance_length": length, "verify_steps": stats.verify_steps, "accepted": stats.accepted}
        print(name, results[name], flush=True)
    options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
