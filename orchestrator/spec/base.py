"""What every section of a sweep file is made of."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._=+/-]*$", max_length=80)]
Scalar = str | int | float | bool


class Spec(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
