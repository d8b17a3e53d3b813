"""Recorded arrivals from a user's file, in the columns of two public collections.

Mooncake (kvcache-ai/Mooncake, FAST25 traces): JSON lines with `timestamp` in milliseconds, `input_length` and
`output_length`. Azure (AzurePublicDataset, AzureLLMInferenceTrace): CSV with TIMESTAMP, ContextTokens and
GeneratedTokens.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from orchestrator.errors import InputError

_AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_MOONCAKE = ("timestamp", "input_length", "output_length")


@dataclass(frozen=True)
class TraceRow:
    """One request of the trace. `at` in seconds on the trace's own clock."""

    at: float
    input_tokens: int
    output_tokens: int


def read_trace(path: Path) -> tuple[TraceRow, ...]:
    """Rows in the file's order. InputError, with the line, for anything that is not such a trace in order of time."""
    reader = {".jsonl": _mooncake, ".csv": _azure}.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path}: a trace is a .jsonl file (Mooncake's columns) or a .csv file (Azure's columns)")
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            numbered = list(reader(lines, path))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    for (_, before), (number, after) in pairwise(numbered):
        if after.at < before.at:
            raise InputError(f"{path}:{number}: the time is before the line above's; sort the trace by time")
    return tuple(row for _, row in numbered)


def _mooncake(lines: Iterator[str], path: Path) -> Iterator[tuple[int, TraceRow]]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                values = json.loads(line)
            except ValueError as error:
                raise InputError(f"{path}:{number}: not JSON: {error}") from error
            if not isinstance(values, dict):
                raise InputError(f"{path}:{number}: expected an object with {', '.join(_MOONCAKE)}")
            yield number, _row(values, _MOONCAKE, lambda value: float(value) / 1000, f"{path}:{number}")


def _azure(lines: Iterator[str], path: Path) -> Iterator[tuple[int, TraceRow]]:
    table = csv.DictReader(lines)
    for values in table:
        yield table.line_num, _row(values, _AZURE, _seconds, f"{path}:{table.line_num}")


def _row(values: Mapping[str, Any], names: tuple[str, str, str], clock: Callable[[Any], float], where: str) -> TraceRow:
    missing = [name for name in names if values.get(name) is None]
    if missing:
        raise InputError(f"{where}: no {missing[0]}; a line has {', '.join(names)}")
    try:
        row = TraceRow(clock(values[names[0]]), int(values[names[1]]), int(values[names[2]]))
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: not a time and two numbers of tokens: {error}") from error
    if not math.isfinite(row.at) or row.input_tokens < 0 or row.output_tokens < 0:
        raise InputError(f"{where}: a time must be finite and a number of tokens not negative")
    return row


def _seconds(text: str) -> float:
    """Of a date and time, UTC where it names no zone."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
