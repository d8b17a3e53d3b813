"""Whole files: replaced at once, and named in every complaint."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pandas as pd
import pyarrow as pa

from engines.messages import one_line
from orchestrator.errors import InputError
from orchestrator.records import Record

R = TypeVar("R", bound=Record)


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


def read_record(path: Path, model: type[R]) -> R:
    """A stored JSON record; InputError naming the file when it is damaged."""
    try:
        return model.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: damaged record: {str(error).splitlines()[0]}") from error


def read_frame(path: Path) -> pd.DataFrame:
    """A trial's frame; InputError naming the file when it is damaged."""
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError, pa.ArrowException) as error:
        remedy = "delete the trial's folder, then --resume measures it again"
        raise InputError(f"{path}: damaged: {one_line(str(error))}; {remedy}") from error
