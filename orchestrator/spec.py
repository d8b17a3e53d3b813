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


class WorkloadSpec(Spec):
    prompts: PromptSpec = PromptSpec()
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


class BlockSpec(Spec):
    """Blocks of prompts: every arm runs each block, in an order drawn from `seed`."""

    count: Annotated[int, Field(ge=2, le=64)] = 4
    seed: int = 0


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
    """How an engine runs here. `interpreter`: a Python, or an environment of `orchestrate engines install`."""

    interpreter: str | None = None
    device: Literal["cpu", "cuda"] = "cpu"
    dtype: Literal["float32", "bfloat16", "float16"] = "bfloat16"
    threads: PositiveInt = 1
    max_context: PositiveInt = 2048
    arguments: list[str] = []
    environment: dict[str, str] = {}
    ready_timeout_s: Annotated[float, Field(gt=0)] = 300.0


class ModelSpec(Spec):
    target: str
    drafter: str | None = None


class ProfileSpec(Spec):
    """A place where the sweep can run."""

    match: MatchSpec = MatchSpec()
    slots: PositiveInt | Literal["all"] = 1
    engine: Name = "reference"
    engines: Annotated[dict[str, EngineSpec], Field(min_length=1)]
    models: ModelSpec

    @model_validator(mode="after")
    def _default_engine_is_listed(self) -> ProfileSpec:
        if self.engine not in self.engines:
            raise ValueError(f"`engine: {self.engine}` is not among `engines` ({', '.join(self.engines)})")
        return self


class SweepSpec(Spec):
    question: Annotated[str, Field(min_length=8, max_length=300)]
    arms: Annotated[list[ArmSpec], Field(min_length=2)]
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
        at = self.selection.at_concurrency
        if at is not None and at not in self.workload.concurrency:
            raise ValueError(f"selection.at_concurrency {at} is not among workload.concurrency")
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
