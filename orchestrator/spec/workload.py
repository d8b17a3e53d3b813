"""What is asked of an engine: which prompts, when, and how it is to answer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt, field_validator, model_validator

from orchestrator.spec.base import Spec

SetName = Literal["orchestrate", "humaneval", "mtbench", "gsm8k", "file"]


class PromptSpec(Spec):
    """Which prompts, of one set or of several. `count` prompts are drawn by `seed`, the same number of each task where
    possible.
    """

    set: SetName | list[SetName] = "orchestrate"
    path: str | None = None
    tasks: list[str] | None = None
    count: PositiveInt | None = None
    seed: int = 0


_ARRIVAL_KEYS = {
    "closed": (),
    "constant": ("rate",),
    "poisson": ("rate",),
    "gamma": ("rate", "burstiness"),
    "ramp": ("rate", "to_rate"),
    "trace": ("trace",),
}


class ArrivalSpec(Spec):
    """When requests are sent. `closed`: when an earlier one is answered; the other patterns at times of their own.

    `rate` in requests/s, for a `ramp` the first, `to_rate` the last. `burstiness` 1 is Poisson, less is burstier.
    `trace`: a file whose times are replayed `speed` times as fast.
    """

    pattern: Literal["closed", "constant", "poisson", "gamma", "ramp", "trace"] = "closed"
    rate: Annotated[float, Field(gt=0, le=1e5)] | None = None
    to_rate: Annotated[float, Field(gt=0, le=1e5)] | None = None
    burstiness: Annotated[float, Field(gt=0, le=1e3)] | None = None
    trace: str | None = None
    speed: Annotated[float, Field(gt=0)] | None = None
    seed: int = 0

    @model_validator(mode="after")
    def _keys_go_with_the_pattern(self) -> ArrivalSpec:
        needed = _ARRIVAL_KEYS[self.pattern]
        given = [key for key in ("rate", "to_rate", "burstiness", "trace") if getattr(self, key) is not None]
        if sorted(given) != sorted(needed):
            raise ValueError(
                f"pattern {self.pattern} takes {' and '.join(f'`{key}`' for key in needed) or 'no other key'}, "
                f"given: {', '.join(given) or 'none'}"
            )
        if self.speed is not None and self.pattern != "trace":
            raise ValueError("`speed` goes with pattern trace")
        return self


class WorkloadSpec(Spec):
    """What is asked. An open loop takes one `concurrency`: the requests that the engine is made to work on at once."""

    prompts: PromptSpec = PromptSpec()
    arrivals: ArrivalSpec = ArrivalSpec()
    max_tokens: PositiveInt = 128
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=0)] = 0
    seed: int = 0
    concurrency: list[PositiveInt] = Field(default=[1], min_length=1)
    request_timeout_s: Annotated[float, Field(gt=0)] = 120.0

    @field_validator("concurrency")
    @classmethod
    def _distinct(cls, value: list[int]) -> list[int]:
        if len(set(value)) != len(value):
            raise ValueError("concurrency levels must differ")
        return value

    @model_validator(mode="after")
    def _one_level_of_an_open_loop(self) -> WorkloadSpec:
        if self.arrivals.pattern != "closed" and len(self.concurrency) > 1:
            raise ValueError(f"arrivals of pattern {self.arrivals.pattern} take one level of `concurrency`")
        return self
