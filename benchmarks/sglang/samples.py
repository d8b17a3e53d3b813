"""Sampled answers of several servers to one prompt: have their tokens one distribution?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from scipy.stats import chi2_contingency

from benchmarks.sglang.servers import Server

SAMPLINGS: Mapping[str, Mapping[str, float]] = {
    "temperature": {"temperature": 1.0},
    "cool": {"temperature": 0.7},
    "top-p": {"temperature": 1.0, "top_p": 0.9},
    "top-k and top-p": {"temperature": 1.0, "top_k": 20, "top_p": 0.8},
    "min-p": {"temperature": 1.0, "min_p": 0.05},
}
_AT_ONCE, _TOKENS = 32, 4
_PLACES = {
    "token 1": slice(0, 1),
    "token 2": slice(1, 2),
    "token 3": slice(2, 3),
    "token 4": slice(3, 4),
    "tokens 1-2": slice(0, 2),
}
"""SGLang draws the first token, after prefill: where it differs prefills do, and not steps."""

Drawn = Sequence[tuple[int, ...]]


def sampled(up: Mapping[str, Server], prompt: list[int], answers: int) -> dict[str, Any]:
    """Each server but `ar` against it, by chi-square of so many answers of each, for each way to sample: `p` is small
    where tokens have another law.
    """
    found: dict[str, Any] = {"answers": answers} | {name: {} for name in up if name != "ar"}
    for kind, sampling in SAMPLINGS.items():
        drawn = _drawn(up, [prompt] * answers, sampling)
        plain = drawn.pop("ar")
        for name, other in drawn.items():
            found[name][kind] = {**sampling} | {
                label: same(Counter(a[part] for a in plain), Counter(b[part] for b in other))
                for label, part in _PLACES.items()
            }
    return found


def _drawn(up: Mapping[str, Server], asked: list[list[int]], sampling: Mapping[str, float]) -> dict[str, Drawn]:
    """Of all servers side by side."""
    with ThreadPoolExecutor(len(up)) as pool:
        some = pool.map(lambda server: server.generate_all(asked, _TOKENS, _AT_ONCE, **sampling), up.values())
        return {name: [tuple(one["output_ids"]) for one in answers] for name, answers in zip(up, some, strict=True)}


def same(one: Counter[Any], other: Counter[Any]) -> dict[str, float]:
    """Chi-square of two samples; what is seen fewer than ten times in both together is one class."""
    common = [key for key, total in (one + other).items() if total >= 10]
    table = [
        [counts[key] for key in common] + [sum(n for key, n in counts.items() if key not in common)]
        for counts in (one, other)
    ]
    columns = [i for i in range(len(common) + 1) if table[0][i] + table[1][i]]
    result = chi2_contingency([[row[i] for i in columns] for row in table])
    return {"classes": len(columns), "p": float(result.pvalue)}
