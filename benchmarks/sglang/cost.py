"""`python -m benchmarks.sglang.cost --shape qwen3-8b --work DIR --out FILE`: what a step costs at real size.

Without weights: SGLang fills a model of the given shape, and a DFlash drafter of five layers and block 16, with random
numbers (--load-format dummy): the steps cost what they would, the tokens mean nothing. `--together` servers at a time:

    ar, dflash, ddtree-N   timed in turn by the client: the first token of one prompt of each context, then steps, over
                           those that they report; then traced by SGLang at the first context;
                           ar@BACKEND and dflash@BACKEND with that attention in place of Triton's,
                           ddtree-N@BACKEND with that one in prefill
    auto-N                 an automatic policy up to that tree: what choosing costs, beside ddtree-N
    chain-15               ddtree-15 that verifies what dflash drafts: experts make one token dearer than another
    ladder                 an automatic policy whose own start-up measurement is the curve: a step at every width; it
                           must have the GPU for itself

FILE is written after every point. What is in it already is not measured again.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.sglang.servers import Place, Server, arm, bring_up, stop_when_told, write
from benchmarks.sglang.shapes import BLOCK, SHAPES, folders
from benchmarks.sglang.times import HEAVY, TOKENS, first_tokens, prompts, steps
from benchmarks.sglang.trace import table
from engines.sglang import report

TRACED = 32
"""Steps in a trace."""
LADDER = "16,32,48,64,80,96,112,128,160,256"
_NO_WAIT = ("--min-free-slots-delay", "1")
"""Requests are taken as soon as there is a slot. Where it drafts by DFlash, SGLang else waits for several free ones: of
32 long prompts, which are prefilled one by one, it ran 29 at once. Not tried on a GPU yet.
"""
_PREFILL_TOKENS_S = 20_000
"""Slower than any prefill of these shapes is."""

Results = dict[str, Any]


def main() -> None:
    options = _options()
    stop_when_told()
    results: Results = json.loads(options.out.read_text()) if options.out.exists() else {}
    results |= {"shape": options.shape, "block": BLOCK, "weights": "random (SGLang's dummy format)", "tp": options.tp}
    for key in ("dead", "points", "prefill", "traces", "ladder", "texts_equal"):
        results.setdefault(key, {})
    place = _place(options)
    for names in _waves(options.servers, options.together):
        if not any(_missing(name, options, results) for name in names):
            continue
        servers: dict[str, Server] = {}
        try:
            for name in names:
                servers[name] = _server(name, place, options.port + 20 * options.servers.index(name))
            dead = bring_up(servers, 420, names[:1])
            results["dead"] = {name: why for name, why in results["dead"].items() if name not in servers} | dead
            up = {name: server for name, server in servers.items() if name not in dead}
            _measure(up, options, results)
        finally:
            for server in servers.values():
                server.stop()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, required=True)
    parser.add_argument("--work", type=Path, required=True, help="a folder for configurations, logs and traces")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--servers", nargs="+", default=["dflash", "ddtree-63", "ar", "dflash@flashinfer", "ladder"])
    parser.add_argument("--together", type=int, default=4, help="servers that the GPU's memory holds")
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--port", type=int, default=29000, help="of the first server; the others follow by twenties")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--contexts", type=int, nargs="+", default=[1024, 8192])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--traced", type=int, nargs="*", default=[1], help="batches")
    parser.add_argument("--most", type=int, default=HEAVY, help="prompt tokens of the largest point")
    return parser.parse_args()


def _place(options: argparse.Namespace) -> Place:
    target, drafter = folders(options.work, options.shape)
    return Place(
        str(target),
        str(drafter),
        "bfloat16",
        options.work,
        max_batch=max(options.batches),
        max_context=max(options.contexts) + 1024,
        arguments=(
            *("--load-format", "dummy", "--skip-tokenizer-init", "--mem-fraction-static", "0.95", "--sleep-on-idle"),
            *("--max-total-tokens", str(_room(options)), "--tp-size", str(options.tp)),
            *("--cuda-graph-bs-decode", *map(str, sorted(options.batches))),
            *_NO_WAIT,
        ),
    )


def _room(options: argparse.Namespace) -> int:
    """KV slots for the largest point."""
    batches, contexts, most = list[int](options.batches), list[int](options.contexts), int(options.most)
    return max(batch * _slots(context) for batch in batches for context in contexts if batch * context <= most)


def _slots(context: int) -> int:
    """Of one request: its prompt, its answer, and SGLang's reserve of two trees of 256."""
    return context + max(TOKENS, 8 * TRACED) + 2 * 256 + 64


def _server(name: str, place: Place, port: int) -> Server:
    if name == "ladder":
        return Server(arm(name, 255, policy="auto"), place, port, {"DDTREE_LADDER": LADDER})
    method, _, backend = name.partition("@")
    budget = method.partition("-")[2]
    option = "prefill_attention_backend" if budget else "attention_backend"
    options: dict[str, Any] = {option: backend} if backend else {}
    if method.startswith("auto"):
        options["policy"] = "auto"
    subject = arm(method, int(budget) if budget else None, method.startswith("chain"), **options)
    return Server(replace(subject, name=name), place, port)


def _missing(name: str, options: argparse.Namespace, results: Results) -> bool:
    """Whether something of this server's is not in the results yet."""
    if name == "ladder":
        return not results["ladder"]
    wanted = [results["points"].get(_key(*point), {}) for point in _points(options)]
    wanted += [results["prefill"].get(_context_key(context), {}) for context in options.contexts]
    return any(name not in found for found in wanted)


def _points(options: argparse.Namespace) -> list[tuple[int, int]]:
    """(batch, context) of the points that the KV cache holds."""
    pairs = [(batch, context) for context in options.contexts for batch in options.batches]
    return [(batch, context) for batch, context in pairs if batch * _slots(context) <= _room(options)]


def _key(batch: int, context: int) -> str:
    return f"batch {batch} {_context_key(context)}"


def _context_key(context: int) -> str:
    return f"context {context}"


def _waves(names: list[str], together: int) -> Iterator[list[str]]:
    for start in range(0, len(names), together):
        yield names[start : start + together]


def _measure(up: Mapping[str, Server], options: argparse.Namespace, results: Results) -> None:
    if "ladder" in up:
        results["ladder"] = json.loads(report.path(up["ladder"].port).read_text())["cost_model"]
        write(options.out, results)
    timed = {name: server for name, server in up.items() if name != "ladder"}
    for context in options.contexts:
        _add_prefill(timed, context, options, results)
    for batch, context in _points(options):
        _add_point(timed, batch, context, options, results)
    for batch in options.traced:
        for name, server in timed.items():
            _add_trace(name, server, batch, options.contexts[0], options, results)
    if "ar" in timed:
        results["texts_equal"] |= _texts(timed)
        write(options.out, results)


def _add_prefill(timed: Mapping[str, Server], context: int, options: argparse.Namespace, results: Results) -> None:
    found = results["prefill"].setdefault(_context_key(context), {})
    missing = {name: server for name, server in timed.items() if name not in found}
    if missing:
        found |= first_tokens(missing, context, options.rounds + 1)
        print("prefill", context, {name: round(time["median"], 2) for name, time in found.items()}, flush=True)
        write(options.out, results)


def _add_point(
    timed: Mapping[str, Server], batch: int, context: int, options: argparse.Namespace, results: Results
) -> None:
    point = results["points"].setdefault(_key(batch, context), {})
    missing = {name: server for name, server in timed.items() if name not in point}
    if missing:
        point |= steps(missing, batch, context, options.rounds)
        print(
            batch, context, {name: step.get("failed", step.get("median")) for name, step in point.items()}, flush=True
        )
        write(options.out, results)


def _add_trace(
    name: str, server: Server, batch: int, context: int, options: argparse.Namespace, results: Results
) -> None:
    """A trace that does not come costs nothing but itself."""
    key = f"{name} {_key(batch, context)}"
    if "step_us" not in results["traces"].get(key, {}):
        folder = options.work / f"trace-{options.shape}-{name}-{batch}-{context}"
        try:
            results["traces"][key] = _traced(server, batch, context, folder)
        except Exception as error:
            results["traces"][key] = {"failed": repr(error)}
        brief = {k: v for k, v in results["traces"][key].items() if k != "kernels"}
        print("trace", key, json.dumps(brief), flush=True)
        write(options.out, results)


def _traced(server: Server, batch: int, context: int, folder: Path) -> dict[str, Any]:
    """Started once the prompts are over, while the answers are still long."""
    asked = prompts(random.Random(context), batch, context)
    wanted = {"output_dir": str(folder), "num_steps": TRACED, "activities": ["CPU", "GPU"]}
    with ThreadPoolExecutor(1) as pool:
        answers = pool.submit(server.generate_all, asked, 8 * TRACED, batch, ignore_eos=True)
        time.sleep(1 + batch * context / _PREFILL_TOKENS_S)
        server.post("/start_profile", wanted | {"with_stack": False, "record_shapes": False}, reads=False)
        answers.result()
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for path in folder.glob("*.trace.json.gz"):
            try:
                return table(path)
            except (EOFError, OSError, json.JSONDecodeError):
                pass  # still being written
        time.sleep(1)
    raise TimeoutError(f"no whole trace in {folder}")


def _texts(timed: Mapping[str, Server]) -> dict[str, str]:
    """How many short answers of each server are those of plain decoding; random weights decide as well as others."""
    asked = prompts(random.Random(1), 24, 40)
    said = {
        name: [answer["output_ids"] for answer in server.generate_all(asked, 32, 8, ignore_eos=True)]
        for name, server in timed.items()
    }
    plain = said.pop("ar")
    return {
        name: f"{sum(a == b for a, b in zip(plain, texts, strict=True))} of {len(asked)}"
        for name, texts in said.items()
    }


if __name__ == "__main__":
    main()
