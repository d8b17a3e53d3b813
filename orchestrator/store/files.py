"""Whole files: replaced at once, and named in every complaint."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pandas as pd
import pyarrow as pa
from pydantic import ValidationError

from engines.messages import one_line
from orchestrator.errors import InputError
from orchestrator.records import Record

R = TypeVar("R", bound=Record)

MEASURE_AGAIN = "; delete the trial's folder, then --resume measures it again"


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """InputError, naming the run's folder, where a file in it cannot be written."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or one_line(str(error))
        remedy = "; make room, then --resume goes on" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        raise InputError(f"{folder}: cannot be written: {reason}{remedy}") from error


def write_text(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old content or the new, never a part."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def write_frame(path: Path, frame: pd.DataFrame) -> None:
    """As `write_text`, a frame as parquet."""
    partial = path.with_name(f".{path.name}.partial")
    frame.to_parquet(partial, index=False)
    partial.replace(path)


def read_record(path: Path, model: type[R], remedy: str = "") -> R:
    """A stored JSON record; InputError naming the file, and the remedy, when it is damaged."""
    try:
        return model.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: damaged record: {first_fault(error)}{remedy}") from error


def first_fault(error: Exception) -> str:
    """In one line; of all that pydantic has to say, what is wrong first."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return ": ".join([*map(str, first["loc"]), first["msg"]])
    return one_line(str(error))


def read_frame(path: Path) -> pd.DataFrame:
    """A trial's frame; InputError naming the file when it is damaged."""
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise InputError(f"{path}: damaged: {one_line(str(error))}{MEASURE_AGAIN}") from error
