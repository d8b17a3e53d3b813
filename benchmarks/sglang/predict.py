"""`python -m benchmarks.sglang.predict COST.json OUT`: PREDICTED tokens a second, from measured step times.

Steps are those of `benchmarks.sglang.cost`; tokens a step are others' measurements of Qwen3-8B with its published
DFlash drafter (CAST, RTX PRO 6000, greedy, block 16), since random weights accept nothing. No token was decoded for
these numbers, and acceptance is taken to be the same at every batch.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

CHAIN = "dflash"
PLAIN = "ar"
TOKENS: Mapping[str, Mapping[str, float]] = {
    "GSM8K": {CHAIN: 6.02, "16": 6.71, "32": 7.47, "64": 7.97, "96": 8.13, "128": 8.30},
    "MT-Bench": {CHAIN: 3.13, "96": 4.56},
    "HumanEval": {CHAIN: 6.36, "96": 8.83},
}
"""Tokens a verify step, of the chain and of trees by width (nodes and root). Plain decoding gives one."""

Json = Mapping[str, Any]


def main() -> None:
    cost = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    found = {"predicted": True, "shape": cost["shape"], "steps_from": sys.argv[1]}
    tables = {name: table(cost, tokens) for name, tokens in TOKENS.items()}
    turns = {
        name: {str(c): crossover(rows, c) for c in sorted({r["context"] for r in rows})}
        for name, rows in tables.items()
    }
    what = (__doc__ or "").partition("\n\n")[2].replace("\n", " ").strip()
    words = found | {"what": what, "data_sets": tables, "first_batch_without_a_tree": turns}
    Path(sys.argv[2]).write_text(json.dumps(words, indent=1) + "\n", encoding="utf-8")
    for name, rows in tables.items():
        for row in rows:
            print("PREDICTED", name, json.dumps(row))


def table(cost: Json, tokens: Mapping[str, float]) -> list[dict[str, Any]]:
    """A row for each batch and context at which a tree was measured: tokens a second of each way to decode, and the
    fastest.
    """
    rows = []
    for point, steps in cost["points"].items():
        batch, context = int(point.split()[1]), int(point.split()[3])
        times = {name: step["median"] for name, step in steps.items() if _method(name) in (PLAIN, CHAIN)}
        times |= {width: ms for width in tokens if (ms := _curve(cost["ladder"], batch, width, context)) is not None}
        trees = {_method(name): step["median"] for name, step in steps.items()}
        times |= {width: trees[_tree(width)] for width in tokens if _tree(width) in trees}
        rates = {name: round(1000 * batch * tokens.get(_method(name), 1.0) / ms, 1) for name, ms in times.items()}
        if rates.keys() & tokens.keys() - {CHAIN}:
            best = max(rates, key=rates.__getitem__)
            rows.append({"batch": batch, "context": context, "tok_s": rates, "fastest": best})
    return rows


def crossover(rows: Sequence[Json], context: int) -> int | None:
    """The smallest measured batch at which no tree is the fastest; None where a tree always is."""
    beaten = [row["batch"] for row in rows if row["context"] == context and _method(row["fastest"]) in (PLAIN, CHAIN)]
    return min(beaten, default=None)


def _tree(width: str) -> str:
    """The server that verifies so many tokens, as `cost` names it; none for the chain's name."""
    return f"ddtree-{int(width) - 1}" if width.isdecimal() else ""


def _method(name: str) -> str:
    """Without the attention back end: `dflash@flashinfer` drafts and verifies as `dflash`, a tree's @ is prefill's."""
    return name.partition("@")[0]


def _curve(ladder: Sequence[Json], batch: int, width: str, context: int) -> float | None:
    """Milliseconds of a step on the line through the contexts that start-up measured; None where it did not."""
    line = sorted((p["context"], p["ms"]) for p in ladder if str(p["width"]) == width and p["requests"] == batch)
    if not line:
        return None
    (near, low), (far, high) = line[0], line[-1]
    return float(low + (high - low) * (context - near) / max(1, far - near))


if __name__ == "__main__":
    main()
