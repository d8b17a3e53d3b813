"""What the plugin is told. SGLang gives plugins no flags of their own, so these are environment variables."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MAX_NODES = 256
MAX_TOPK = 32
MAX_CONTEXT = 2**31 - 1
ATTENTION = ("kernel", "stock")
BACKEND = "ddtree"
"""The attention backend that verifies, as SGLang's flags name it."""
PREFILL = (BACKEND, "fa3", "flashinfer", "triton")
"""Those that may prefill: they read and write the KV pool in SGLang's plain layout. Ours does it by Triton's kernel."""
LADDER = (16, 32, 64, 128)


@dataclass(frozen=True)
class Settings:
    """`budget` counts draft nodes without the root; with policy `auto` it is the widest tree that may be chosen.

    attention: `kernel` verifies with ddtree.tree_attention, `stock` with SGLang's extend kernel and a custom mask.
    block_size and topk: None takes the drafter's own and min(budget, 32). context: tokens to serve, None for what fits.
    ladder: widths that policy `auto` chooses among, beside the block's and the widest.
    """

    budget: int
    policy: str = "fixed"
    chain: bool = False
    attention: str = "kernel"
    block_size: int | None = None
    topk: int | None = None
    ladder: tuple[int, ...] = LADDER
    context: int | None = None
    report: Path | None = None

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "Settings":
        """From DDTREE_BUDGET (1 to 255, or `auto` with DDTREE_MAX_BUDGET), DDTREE_CHAIN, DDTREE_ATTENTION,
        DDTREE_BLOCK_SIZE, DDTREE_TOPK, DDTREE_LADDER (16,32) and DDTREE_REPORT; from DDTREE_CONTEXT too,
        which the plugin sets itself. ValueError in one line.
        """
        automatic = environ.get("DDTREE_BUDGET") == "auto"
        name = "DDTREE_MAX_BUDGET" if automatic else "DDTREE_BUDGET"
        budget = _integer(environ, name, 1, MAX_NODES - 1)
        if budget is None:
            raise ValueError(f"{name} is not set, allowed is 1 to {MAX_NODES - 1}")
        report = environ.get("DDTREE_REPORT")
        return cls(
            budget=budget,
            policy="auto" if automatic else "fixed",
            chain=_choice(environ, "DDTREE_CHAIN", ("0", "1")) == "1",
            attention=_choice(environ, "DDTREE_ATTENTION", ATTENTION),
            block_size=_integer(environ, "DDTREE_BLOCK_SIZE", 2, MAX_NODES),
            topk=_integer(environ, "DDTREE_TOPK", 1, MAX_NODES),
            ladder=_ladder(environ.get("DDTREE_LADDER")),
            context=_integer(environ, "DDTREE_CONTEXT", 1, MAX_CONTEXT),
            report=Path(report) if report else None,
        )

    @property
    def candidates(self) -> int:
        """K: how many tokens of each drafted position may become nodes."""
        return self.topk or min(self.budget, MAX_TOPK)

    def width(self, block_size: int) -> int:
        """Tokens that the widest verify step takes for one request: the tree with its root, and never fewer than a
        block, because an accepted path is up to a block long.
        """
        return max(self.budget + 1, block_size)

    def widths(self, block_size: int) -> list[int]:
        """Ascending; one where the budget is fixed, and from the block up where it is chosen step by step."""
        widest = self.width(block_size)
        if self.policy == "fixed":
            return [widest]
        return sorted({block_size, *(width for width in self.ladder if block_size < width < widest), widest})


def _ladder(text: str | None) -> tuple[int, ...]:
    if not text:
        return LADDER
    widths = text.split(",")
    if not all(width.isdecimal() and 2 <= int(width) <= MAX_NODES for width in widths):
        raise ValueError(f"DDTREE_LADDER is {text!r}, allowed are widths of 2 to {MAX_NODES}, as in 16,32")
    return tuple(map(int, widths))


def _integer(environ: Mapping[str, str], name: str, low: int, high: int) -> int | None:
    text = environ.get(name)
    if not text:
        return None
    if not text.isdecimal() or not low <= int(text) <= high:
        raise ValueError(f"{name} is {text!r}, allowed is {low} to {high}")
    return int(text)


def _choice(environ: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    text = environ.get(name) or allowed[0]
    if text not in allowed:
        raise ValueError(f"{name} is {text!r}, allowed are {', '.join(allowed)}")
    return text
