"""Where a sweep can run, and with which engines and models."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, model_validator

from orchestrator.spec.base import Name, Spec


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
    arguments: list[str] = Field(default_factory=list)
    environment: dict[str, str] = Field(default_factory=dict)
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
