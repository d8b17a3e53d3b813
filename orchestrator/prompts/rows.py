"""Records of a data file, each with the place it came from."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.prompts.errors import PromptError


@dataclass(frozen=True)
class Row:
    """One record; `where` is file:line (file:row for parquet)."""

    where: str
    fields: Mapping[str, object]

    def text(self, key: str) -> str:
        """The field as it stands; PromptError when it is missing, blank or no string."""
        value = self.fields.get(key)
        if not isinstance(value, str) or not value.strip():
            raise PromptError(f"{self.where}: `{key}` must be a string that is not blank, not {value!r}")
        return value

    def allow(self, *keys: str) -> None:
        """PromptError for a field that is not among `keys`."""
        unknown = sorted(set(self.fields) - set(keys))
        if unknown:
            raise PromptError(f"{self.where}: unknown field `{unknown[0]}`; allowed: {', '.join(keys)}")


def read_rows(path: Path) -> list[Row]:
    """Every record of a .jsonl, .jsonl.gz or .parquet file. Blank lines are skipped."""
    try:
        rows = list(_parquet(path) if path.suffix == ".parquet" else _lines(path))
    except (OSError, EOFError) as error:
        raise PromptError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not rows:
        raise PromptError(f"{path}: holds no prompts")
    return rows


def _lines(path: Path) -> Iterator[Row]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield _row(f"{path}:{number}", line)


def _row(where: str, line: bytes) -> Row:
    try:
        fields = json.loads(line.decode())
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise PromptError(f"{where}: not valid JSON: {error}") from error
    if not isinstance(fields, dict):
        raise PromptError(f"{where}: expected a JSON object, not {type(fields).__name__}")
    return Row(where, fields)


def _parquet(path: Path) -> Iterator[Row]:
    import pyarrow
    from pyarrow import parquet

    try:
        records = parquet.read_table(path).to_pylist()
    except pyarrow.ArrowInvalid as error:
        raise PromptError(f"{path}: not a parquet file: {error}") from error
    for number, fields in enumerate(records, start=1):
        yield Row(f"{path}:{number}", fields)
