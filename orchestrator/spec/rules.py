"""How a run is decided. No trial depends on it, so a run can be decided again by other rules."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from orchestrator.spec.base import Name, Spec


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
