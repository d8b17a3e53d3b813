"""How much is measured: blocks of prompts, and what goes before each measurement."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, PositiveInt, model_validator

from orchestrator.spec.base import Spec

MAX_BLOCKS = 64


class BlockSpec(Spec):
    """Blocks of prompts: every arm runs each block, in the order of a Latin square drawn from `seed`.

    `count` alone is their number. With `max`, `step` blocks at a time are added to `count` until the outcome is clear,
    the log speed-up's interval is within +-`half_width`, or `max` is reached.

    `restart`: a slot that goes on to another block starts its engines anew, so that intervals hold the luck of a start.
    """

    count: Annotated[int, Field(ge=2, le=MAX_BLOCKS)] = 4
    max: int = 16
    step: Annotated[int, Field(ge=1, le=64)] = 2
    half_width: Annotated[float, Field(gt=0, lt=1)] = 0.01
    seed: int = 0
    restart: bool = False

    @model_validator(mode="before")
    @classmethod
    def _count_alone_is_all(cls, data: Any) -> Any:
        count = data.get("count") if isinstance(data, dict) else None
        return {"max": count} | data if isinstance(count, int) else data

    @model_validator(mode="after")
    def _max_is_not_less(self) -> BlockSpec:
        if not self.count <= self.max <= MAX_BLOCKS:
            raise ValueError(f"`max` must be between `count`, {self.count}, and {MAX_BLOCKS}, not {self.max}")
        return self

    @property
    def looks(self) -> int:
        """How often, at most, is asked whether to add blocks."""
        return -(-(self.max - self.count) // self.step)


class WarmupSpec(Spec):
    """Requests before a measurement, until the time a token takes is flat within `tolerance`."""

    min_requests: PositiveInt = 2
    max_requests: PositiveInt = 8
    max_tokens: PositiveInt = 16
    tolerance: Annotated[float, Field(gt=0, lt=1)] = 0.1
