"""`python -m benchmarks.sglang.cost --shape qwen3-8b --out FILE`: what a step costs at real size, without weights.

SGLang fills a model of the given shape, and a DFlash drafter of five layers and block 16, with random numbers
(--load-format dummy): the steps cost what they would, the tokens mean nothing. Servers of plain decoding, stock DFlash
and trees of several widths run side by side and are timed in turn, by the client, over the steps that they report.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks.sglang.servers import Place, Server, arm, write

QWEN3: dict[str, Any] = {
    "num_attention_heads": 32,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "attention_bias": False,
    "torch_dtype": "bfloat16",
}
"""What the models of the family have in common."""
SHAPES: dict[str, dict[str, Any]] = {
    "qwen3-8b": QWEN3
    | {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_key_value_heads": 8,
    },
    "qwen3-30b-a3b": QWEN3
    | {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "num_hidden_layers": 48,
        "num_key_value_heads": 4,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    },
}
BLOCK, DRAFT_LAYERS = 16, 5
TOKENS = 96


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, required=True)
    parser.add_argument("--work", type=Path, required=True, help="a folder for the configurations and logs")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budgets", type=int, nargs="+", default=[15, 63])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--contexts", type=int, nargs="+", default=[1024, 8192])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    target, drafter = _folders(options.work, options.shape)
    beside = TOKENS + 2 * (max(options.budgets) + 1) + 64  # KV slots for an answer and for SGLang's reserve after it
    room = max(b * (c + beside) for b in options.batches for c in options.contexts if b * c <= 70_000)
    place = Place(
        str(target),
        str(drafter),
        "bfloat16",
        options.work,
        max_batch=max(options.batches),
        max_context=max(options.contexts) + 1024,
        arguments=(
            *("--load-format", "dummy", "--skip-tokenizer-init", "--mem-fraction-static", "0.95"),
            *("--max-total-tokens", str(room), "--sleep-on-idle"),
        ),
    )
    servers = {"ar": Server(arm("ar"), place, 34000), "dflash": Server(arm("dflash"), place, 34020)}
    for index, budget in enumerate(options.budgets):
        servers[f"ddtree-{budget}"] = Server(arm(f"ddtree-{budget}", budget), place, 34040 + 20 * index)
    results: dict[str, Any] = {"shape": options.shape, "block": BLOCK, "weights": "random (SGLang's dummy format)"}
    try:
        dead = {name: one.death() for name, one in servers.items() if not one.ready(420)}
        results |= {"dead": dead, "points": []}
        print("dead:", dead, flush=True)
        for context in options.contexts:
            for batch in options.batches:
                if batch * (context + beside) <= room:
                    point = _point({n: s for n, s in servers.items() if n not in dead}, batch, context, options.rounds)
                    results["points"].append({"batch": batch, "context": context, "step_ms": point})
                    print(batch, context, json.dumps(point), flush=True)
                    write(options.out, results)
    finally:
        for server in servers.values():
            server.stop()


def _folders(work: Path, shape: str) -> tuple[Path, Path]:
    target, drafter = work / shape, work / f"{shape}-dflash"
    config = SHAPES[shape]
    layers = config["num_hidden_layers"]
    shared = {k: v for k, v in SHAPES["qwen3-8b"].items() if k not in ("architectures", "model_type")}
    taps = [round(1 + i * (layers - 4) / (DRAFT_LAYERS - 1)) for i in range(DRAFT_LAYERS)]
    draft = (
        shared
        | {k: config[k] for k in ("hidden_size", "num_attention_heads", "num_key_value_heads")}
        | {
            "architectures": ["DFlashDraftModel"],
            "model_type": "qwen3",
            "num_hidden_layers": DRAFT_LAYERS,
            "block_size": BLOCK,
            "num_target_layers": layers,
            "dflash_config": {"mask_token_id": 151669, "target_layer_ids": taps},
        }
    )
    for folder, words in ((target, config), (drafter, draft)):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(words, indent=1))
    return target, drafter


def _point(servers: dict[str, Server], batch: int, context: int, rounds: int) -> dict[str, Any]:
    """Median step time of each server, the servers in a new order each round."""
    source = random.Random(batch * context)
    times: dict[str, list[float]] = {name: [] for name in servers}
    for number in range(rounds + 1):
        for name in source.sample(list(servers), len(servers)):
            step = _step_ms(servers[name], batch, context, source)
            if number:  # the first round warms up
                times[name].append(step)
    return {name: {"median": statistics.median(some), "all": some} for name, some in times.items()}


def _step_ms(server: Server, batch: int, context: int, source: random.Random) -> float:
    """Two batches that differ in length alone: the difference of their times over that of their steps is without
    prefill and without the request's own overhead.
    """
    prompts = [[source.randrange(1000, 100_000) for _ in range(context)] for _ in range(batch)]
    spans = []
    for tokens in (TOKENS // 3, TOKENS):
        began = time.perf_counter()
        answers = server.generate_all(prompts, tokens, batch, ignore_eos=True)
        spans.append((time.perf_counter() - began, max(_steps(answer["meta_info"]) for answer in answers)))
    (short, few), (long, many) = spans
    return 1000 * (long - short) / (many - few)


def _steps(told: dict[str, Any]) -> int:
    return int(told.get("spec_verify_ct") or told["completion_tokens"] - 1)


if __name__ == "__main__":
    main()
