"""Files of records that only grow, one JSON line each: appended to and synced, so that a kill costs half a line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from orchestrator.errors import InputError
from orchestrator.records import Record

R = TypeVar("R", bound=Record)


def append(path: Path, record: Record) -> None:
    """Add one line and sync it to the disk. A half line that a killed writer left is closed first."""
    with path.open("ab+") as handle:
        if handle.tell() and not _ends_with_newline(path):
            handle.write(b"\n")
        handle.write(record.model_dump_json().encode() + b"\n")
        handle.flush()
        os.fsync(handle.fileno())


def read_lines(path: Path, model: type[R]) -> list[R]:
    """The records so far; none where there is no file. A line cut off by a kill is left out: what it said never took
    effect. InputError for a whole line that says something else, such as another version's."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return [_record(path, number, line, model) for number, line in enumerate(lines, 1) if is_json(line)]


def is_json(line: str) -> bool:
    """Whether a line is whole."""
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _record(path: Path, number: int, line: str, model: type[R]) -> R:
    try:
        return model.model_validate_json(line)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"]))
        raise InputError(f"{path}:{number}: {where}: {problem['msg']}") from error


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as handle:
        handle.seek(-1, os.SEEK_END)
        return handle.read(1) == b"\n"
