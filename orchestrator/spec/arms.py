"""The arms: written out, of a grid, or trees that a search places."""

from __future__ import annotations

import itertools
from typing import Annotated, Any

from pydantic import Field, PositiveInt, ValidationError, field_validator, model_validator

from engines.base import Arm, Method
from orchestrator.spec.base import Name, Scalar, Spec


class ArmSpec(Spec):
    """One arm, or with `grid` one arm for every combination of the grid's values."""

    method: Method
    name: Name | None = None
    engine: Name | None = None
    budget: Annotated[int, Field(ge=1, le=1024)] | None = None
    chain: bool = False
    options: dict[str, Scalar] = Field(default_factory=dict)
    grid: dict[str, Annotated[list[Scalar], Field(min_length=1)]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _budget_goes_with_a_tree(self) -> ArmSpec:
        has_budget = self.budget is not None or "budget" in self.grid
        if (self.method is Method.DDTREE) != has_budget:
            given = f"; the grid has {', '.join(self.grid)}" if self.grid else ""
            raise ValueError(f"`budget` is required for method ddtree and not allowed for any other{given}")
        both = [key for key in ("budget", "chain") if key in self.grid and getattr(self, key)]
        if both:
            raise ValueError(f"`{both[0]}` stands in the arm and in its grid; keep one of them")
        if self.chain and self.method is not Method.DDTREE:
            raise ValueError("`chain` is an option of method ddtree")
        if self.grid and self.name:
            raise ValueError("an arm with a grid is named by its values; remove `name`")
        self.expand()
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
            arms.append(_one_of_a_grid(fields | direct | {"options": self.options | options}))
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
    options: dict[str, Scalar] = Field(default_factory=dict)
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


def _one_of_a_grid(values: dict[str, Any]) -> ArmSpec:
    """ValueError in one line: raised in a validator, pydantic's own would hide where in the file it belongs."""
    try:
        return ArmSpec.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        told = ": ".join([*map(str, first["loc"]), first["msg"].removeprefix("Value error, ")])
        raise ValueError(f"grid: {told}") from error
