"""The sweep file: one question, the arms that may answer it, the workload, and where it can run."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, field_validator, model_validator

from engines.base import Arm, Method
from orchestrator.source import Source

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._=+/-]*$", max_length=80)]
Scalar = str | int | float | bool


class Spec(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ArmSpec(Spec):
    """One arm, or with `grid` one arm for every combination of the grid's values."""

    method: Method
    name: Name | None = None
    engine: Name | None = None
    budget: Annotated[int, Field(ge=1, le=1024)] | None = None
    chain: bool = False
    options: dict[str, Scalar] = {}
    grid: dict[str, Annotated[list[Scalar], Field(min_length=1)]] = {}

    @model_validator(mode="after")
    def _budget_goes_with_a_tree(self) -> ArmSpec:
        has_budget = self.budget is not None or "budget" in self.grid
        if (self.method is Method.DDTREE) != has_budget:
            raise ValueError("`budget` is required for method ddtree and not allowed for any other")
        if self.chain and self.method is not Method.DDTREE:
            raise ValueError("`chain` is an option of method ddtree")
        if self.grid and self.name:
            raise ValueError("an arm with a grid is named by its values; remove `name`")
        return self

    def expand(self) -> list[ArmSpec]:
        """The arms of the grid, each with the values in place."""
        if not self.grid:
            return [self]
        fields = self.model_dump(exclude={"grid"}, exclude_unset=True)
        keys = list(self.grid)
        arms = []
        for values in itertools.product(*self.grid.values()):
            settings = dict(zip(keys, values, strict=True))
            direct = {k: v for k, v in settings.items() if k in ("budget", "chain")}
            options = {k: v for k, v in settings.items() if k not in direct}
            arms.append(ArmSpec.model_validate(fields | direct | {"options": self.options | options}))
        return arms

    def label(self) -> str:
        """The name, or one made of method and parameters."""
        if self.name:
            return self.name
        parts = [f"budget={self.budget}"] if self.budget is not None else []
        parts += ["chain"] if self.chain else []
        parts += [f"{key}={value}" for key, value in sorted(self.options.items())]
        return " ".join([self.method.value, *parts]).replace(" ", "-")

    def resolved(self, default_engine: str) -> Arm:
        """The arm, run by `default_engine` where it names none."""
        return Arm(
            name=self.label(),
            engine=self.engine or default_engine,
            method=self.method,
            budget=self.budget,
            chain=self.chain,
            options=dict(self.options),
        )


class PromptSpec(Spec):
    """Which prompts. `count` prompts are drawn by `seed`, the same number of each task where possible."""

    set: Literal["orchestrate", "humaneval", "mtbench", "gsm8k", "file"] = "orchestrate"
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
    concurrency: Annotated[list[PositiveInt], Field(min_length=1)] = [1]
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


MAX_BLOCKS = 64


class BlockSpec(Spec):
    """Blocks of prompts: every arm runs each block, in an order drawn from `seed`.

    `count` alone is their number. With `max`, `step` blocks at a time are added to `count` until the outcome is clear,
    the log speed-up's interval is within +-`half_width`, or `max` is reached.
    """

    count: Annotated[int, Field(ge=2, le=MAX_BLOCKS)] = 4
    max: int = 16
    step: Annotated[int, Field(ge=1, le=64)] = 2
    half_width: Annotated[float, Field(gt=0, lt=1)] = 0.01
    seed: int = 0

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


class SelectionSpec(Spec):
    baseline: Name = "autoregressive"
    at_concurrency: PositiveInt | None = None
    margin: Annotated[float, Field(ge=0, lt=1)] = 0.02
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    resamples: Annotated[int, Field(ge=1000, le=100_000)] = 10_000
    seed: int = 0


class EquivalenceSpec(Spec):
    """The gate. `near_tie`: the largest logit gap that is a tie; `auto` is 0 in float32, calibrated otherwise."""

    enabled: bool = True
    near_tie: Annotated[float, Field(ge=0)] | Literal["auto"] = "auto"


class SloSpec(Spec):
    ttft_ms: Annotated[float, Field(gt=0)] | None = None
    tpot_ms: Annotated[float, Field(gt=0)] | None = None
    e2e_ms: Annotated[float, Field(gt=0)] | None = None


class MatchSpec(Spec):
    """What a node must offer a slot."""

    accelerator: str | None = None
    gpus: Annotated[int, Field(ge=0, le=16)] = 0
    cpus: PositiveInt = 1
    memory_gib: Annotated[float, Field(gt=0)] = 2.0

    @model_validator(mode="before")
    @classmethod
    def _one_gpu_of_an_accelerator(cls, data: Any) -> Any:
        return {"gpus": 1} | data if isinstance(data, dict) and data.get("accelerator") else data


class EngineSpec(Spec):
    """How an engine runs here. `interpreter`: a Python, or an environment of `orchestrate engines install`.

    `image`: a container image of this machine that holds the engine, instead of an interpreter.
    """

    interpreter: str | None = None
    image: Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.:/@-]*$")] | None = None
    device: Literal["cpu", "cuda"] = "cpu"
    dtype: Literal["float32", "bfloat16", "float16"] = "bfloat16"
    threads: PositiveInt = 1
    max_context: PositiveInt = 2048
    arguments: list[str] = []
    environment: dict[str, str] = {}
    ready_timeout_s: Annotated[float, Field(gt=0)] = 300.0

    @model_validator(mode="after")
    def _in_one_place(self) -> EngineSpec:
        if self.image and self.interpreter:
            raise ValueError("`image` and `interpreter` exclude each other; remove one")
        return self


class ModelSpec(Spec):
    """`acceptance_floor`: the acceptance length below which the drafter cannot be wired right; None asks its card."""

    target: str
    drafter: str | None = None
    acceptance_floor: Annotated[float, Field(ge=1)] | None = None


class ProfileSpec(Spec):
    """A place where the sweep can run.

    `resident`: engines that a slot keeps up at once, so that arms alternate without a start each; they share its
    memory, and one is measured at a time. `price_per_gpu_hour` in USD, for what a million tokens cost.
    """

    match: MatchSpec = MatchSpec()
    slots: PositiveInt | Literal["all"] = 1
    resident: Annotated[int, Field(ge=1, le=16)] = 1
    engine: Name = "reference"
    engines: Annotated[dict[str, EngineSpec], Field(min_length=1)]
    models: ModelSpec
    price_per_gpu_hour: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _default_engine_is_listed(self) -> ProfileSpec:
        if self.engine not in self.engines:
            raise ValueError(f"`engine: {self.engine}` is not among `engines` ({', '.join(self.engines)})")
        return self


Range = tuple[PositiveInt, PositiveInt]


class SearchSpec(Spec):
    """Lets Optuna place tree budgets and concurrencies before the comparison; the best of them join `arms`.

    Ranges are [lowest, highest]; without `concurrency` the workload's levels are the choices. `prompts` of the sweep's
    prompts are kept for the search, so that none of them chooses an arm and then compares it.
    """

    budget_gpu_minutes: Annotated[float, Field(gt=0)]
    budget: Range
    concurrency: Range | None = None
    engine: Name | None = None
    chain: bool = False
    options: dict[str, Scalar] = {}
    prompts: Annotated[int, Field(ge=2)] = 8
    finalists: Annotated[int, Field(ge=1, le=8)] = 3
    seed: int = 0

    @field_validator("budget", "concurrency")
    @classmethod
    def _in_order(cls, value: Range | None) -> Range | None:
        if value is not None and value[0] > value[1]:
            raise ValueError(f"a range goes from its lowest to its highest value, not from {value[0]} to {value[1]}")
        return value

    def arm(self, budget: int) -> ArmSpec:
        """The tree of this budget."""
        fields = {"engine": self.engine, "chain": self.chain, "options": self.options}
        return ArmSpec.model_validate({"method": Method.DDTREE, "budget": budget} | fields)


class SweepSpec(Spec):
    question: Annotated[str, Field(min_length=8, max_length=300)]
    arms: Annotated[list[ArmSpec], Field(min_length=1)]
    search: SearchSpec | None = None
    workload: WorkloadSpec = WorkloadSpec()
    blocks: BlockSpec = BlockSpec()
    warmup: WarmupSpec = WarmupSpec()
    selection: SelectionSpec = SelectionSpec()
    equivalence: EquivalenceSpec = EquivalenceSpec()
    slo: SloSpec = SloSpec()
    profiles: Annotated[dict[Name, ProfileSpec], Field(min_length=1)]

    @model_validator(mode="after")
    def _consistent(self) -> SweepSpec:
        labels = [arm.label() for arm in self.expanded_arms()]
        doubles = sorted({label for label in labels if labels.count(label) > 1})
        if doubles:
            raise ValueError(f"two arms are named {doubles[0]!r}; give one of them another `name`")
        if self.selection.baseline not in labels:
            raise ValueError(f"selection.baseline {self.selection.baseline!r} is no arm; arms: {', '.join(labels)}")
        if len(labels) < 2 and self.search is None:
            raise ValueError("two arms are the least that can be compared, or one and a `search`")
        at = self.selection.at_concurrency
        if at is not None and at not in self.workload.concurrency:
            raise ValueError(f"selection.at_concurrency {at} is not among workload.concurrency")
        return self

    @model_validator(mode="after")
    def _search_can_run(self) -> SweepSpec:
        if self.search is None:
            return self
        if self.workload.arrivals.pattern != "closed":
            raise ValueError("a `search` places the concurrency of a closed loop; remove workload.arrivals")
        highest = max(self.search.concurrency or self.workload.concurrency)
        if self.search.prompts < highest:
            raise ValueError(f"search.prompts {self.search.prompts} cannot keep {highest} requests in flight")
        return self

    def expanded_arms(self) -> list[ArmSpec]:
        return [arm for spec in self.arms for arm in spec.expand()]

    @property
    def decision_concurrency(self) -> int:
        return self.selection.at_concurrency or self.workload.concurrency[0]


def load_spec(path: Path, overrides: list[str] | None = None) -> SweepSpec:
    """Read a sweep file; `overrides` are `dotted.key=value` (the value is YAML). InputError names file and line."""
    source = Source(path)
    for override in overrides or []:
        source.override(override)
    return source.parse(SweepSpec)


def dump_spec(spec: SweepSpec) -> dict[str, Any]:
    """The resolved sweep as plain data for sweep.yaml."""
    return spec.model_dump(mode="json")
