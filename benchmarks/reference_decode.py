"""Speed of the reference engine by itself: milliseconds a forward by width, tokens a second by method.

    python -m benchmarks.reference_decode --target FOLDER [--drafter FOLDER] [--dtype bfloat16] [--threads 2]

Prints two tables and writes them as JSON with the machine and versions. Other processes' use of the processors is
measured during the run and written beside the numbers: above 0.1 cores they are not worth keeping.
"""

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
import transformers

from engines.reference.decoding.engine import Engine, GenerationRequest, Method, SamplingParams
from engines.reference.model.checkpoint import load_drafter, load_target
from engines.reference.model.drafter import Drafter
from engines.reference.model.mask import causal
from engines.reference.model.target import Target, plan_pass

WIDTHS = (1, 8, 16, 32, 64, 128)
CACHED = 256
REPEATS = 15
NEW_TOKENS = 96
QUESTIONS = (
    "Why is the sky blue?",
    "Write a Python function that returns the n-th Fibonacci number.",
    "A train travels 60 km in 1.5 hours. What is its average speed?",
    "Give me three tips for writing a good email.",
)
METHODS = (Method("autoregressive"), Method("dflash"), *(Method("ddtree", budget) for budget in (7, 15, 31)))


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    target = load_target(options.target, getattr(torch, options.dtype), options.device)
    drafter = load_drafter(options.drafter, target) if options.drafter else None
    others = Others()
    forwards = [forward_row(target, width) for width in WIDTHS]
    methods = [
        method_row(target, drafter, options.target, method) for method in METHODS if drafter or not method.budget
    ]
    result = {
        "machine": machine(options),
        "other_processes_cores": others.cores(),
        "forward_ms": forwards,
        "methods": methods,
    }
    show(result)
    options.output.write_text(json.dumps(result, indent=1) + "\n")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--drafter", type=Path)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="bfloat16")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=psutil.cpu_count(logical=False) or 1)
    parser.add_argument("--output", type=Path, default=Path("reference_decode.json"))
    return parser.parse_args()


def machine(options: argparse.Namespace) -> dict[str, Any]:
    info = Path("/proc/cpuinfo")
    names = [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": psutil.cpu_count(),
        "threads": options.threads,
        "device": torch.cuda.get_device_name() if options.device.startswith("cuda") else "cpu",
        "dtype": options.dtype,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


class Others:
    """Processor time that this process did not use, since the start."""

    def __init__(self) -> None:
        self._start = self._reading()

    def cores(self) -> float:
        """Mean cores kept busy by others."""
        wall, busy = (now - then for now, then in zip(self._reading(), self._start, strict=True))
        return round(busy / wall, 3)

    @staticmethod
    def _reading() -> tuple[float, float]:
        total, own = psutil.cpu_times(), psutil.Process().cpu_times()
        used = sum(total) - total.idle - getattr(total, "iowait", 0.0) - getattr(total, "guest", 0.0)
        return time.monotonic(), used - own.user - own.system


def forward_row(target: Target, width: int) -> dict[str, float]:
    """Median time of a forward of `width` tokens after CACHED ones, logits of all of them included."""
    cache, rotary = target.new_cache(1, CACHED + width), target.rotary_table(CACHED + width)
    tokens = torch.arange(width, device=target.device).unsqueeze(0)
    prefix = torch.tensor([CACHED], device=target.device)

    def forward() -> None:
        among = causal(1, width, target.device)
        where = prefix.unsqueeze(1) + torch.arange(width, device=target.device)
        step = plan_pass(target.config, cache, rotary, among, prefix, where, 0, CACHED + width)
        target.logits(target.forward(tokens, step)[0])

    return {"width": width, "ms": float(np.median([timed(forward, target) for _ in range(REPEATS)])) * 1e3}


@torch.inference_mode()
def timed(call: Callable[[], None], target: Target) -> float:
    start = time.perf_counter()
    call()
    if target.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def method_row(target: Target, drafter: Drafter | None, folder: Path, method: Method) -> dict[str, Any]:
    """Greedy decoding of the questions one after the other; the prefill is left out of the speed."""
    engine = Engine(target, drafter, method, 1, 1024)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    prompts: list[Any] = []
    for question in QUESTIONS:
        chat = [{"role": "user", "content": question}]
        prompts.append(tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False))
    run(engine, prompts[:1])
    engine.reset()
    run(engine, prompts)
    stats, times = engine.stats(), engine.stage_times()
    stages = {name: getattr(times, name) for name in ("draft", "build", "verify", "commit", "host")}
    return {
        "method": " ".join(str(part) for part in (method.name, method.budget) if part),
        "tokens_per_s": stats.emitted / sum(stages.values()),
        "tokens_per_step": stats.emitted / stats.verify_steps,
        "ms_per_step": {name: seconds / times.decode_steps * 1e3 for name, seconds in stages.items()},
        "prefill_ms": times.prefill / times.prefill_steps * 1e3,
    }


def run(engine: Engine, prompts: list[list[int]]) -> None:
    for index, prompt in enumerate(prompts):
        engine.submit(GenerationRequest(str(index), tuple(prompt), SamplingParams(max_tokens=NEW_TOKENS)))
    while engine.has_work():
        engine.step()


def show(result: dict[str, Any]) -> None:
    print(*(f"{key}: {value}" for key, value in result["machine"].items()), sep="\n")
    print(f"other processes: {result['other_processes_cores']} cores\n\nwidth  ms/forward  ratio")
    base = result["forward_ms"][0]["ms"]
    for row in result["forward_ms"]:
        print(f"{row['width']:5d}  {row['ms']:10.1f}  {row['ms'] / base:5.2f}")
    print("\nmethod          tok/s  tok/step  draft  build  verify  commit  host  (ms/step)")
    for row in result["methods"]:
        stages = "  ".join(f"{row['ms_per_step'][name]:5.2f}" for name in row["ms_per_step"])
        print(f"{row['method']:15s} {row['tokens_per_s']:5.1f}  {row['tokens_per_step']:8.2f}  {stages}")


if __name__ == "__main__":
    main()
