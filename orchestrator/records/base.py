"""What every record is, and an estimate with its interval."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """Base of everything written to a JSON file: unknown keys are an error, records never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Interval(Record):
    """A point estimate with its confidence interval. Units are the quantity's own."""

    estimate: float
    low: float
    high: float
