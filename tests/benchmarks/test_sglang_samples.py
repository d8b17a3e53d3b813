"""Servers that draw from a known law, or from another."""

import random
from collections.abc import Iterable, Sequence
from typing import Any, cast

from benchmarks.sglang.samples import SAMPLINGS, sampled
from benchmarks.sglang.servers import Server


class Drawer:
    """Draws each token from these weights, the second from others."""

    def __init__(self, seed: int, weights: Sequence[float], second: Sequence[float] | None = None) -> None:
        self.random = random.Random(seed)
        self.weights = [weights, second or weights, weights, weights]

    def generate_all(self, prompts: Iterable[Sequence[int]], tokens: int, _: int, **__: Any) -> list[dict[str, Any]]:
        return [{"output_ids": [self.draw(weights) for weights in self.weights[:tokens]]} for _ in prompts]

    def draw(self, weights: Sequence[float]) -> int:
        return self.random.choices(range(len(weights)), weights)[0]


def test_another_law_is_found_where_it_is() -> None:
    law = [0.4, 0.3, 0.2, 0.1]
    up = cast(
        dict[str, Server],
        {"ar": Drawer(1, law), "same": Drawer(2, law), "other": Drawer(3, law, [0.3, 0.4, 0.2, 0.1])},
    )
    found = sampled(up, [1, 2], 2000)
    assert found["answers"] == 2000
    assert set(found) == {"answers", "same", "other"}
    assert set(found["other"]) == set(SAMPLINGS)
    for kind in SAMPLINGS:
        told = {label: value["p"] for label, value in found["other"][kind].items() if isinstance(value, dict)}
        assert {label for label, p in told.items() if p < 1e-4} == {"token 2", "tokens 1-2"}
        assert min(value["p"] for value in found["same"][kind].values() if isinstance(value, dict)) > 1e-4
