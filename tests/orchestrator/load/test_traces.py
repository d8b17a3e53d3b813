from pathlib import Path

import pytest

from orchestrator.errors import InputError
from orchestrator.load.traces import TraceRow, read_trace

MOONCAKE = """{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}

{"timestamp": 30535, "input_length": 6472, "output_length": 26, "hash_ids": [46]}
"""
AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
"""


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_mooncakes_columns_are_read_in_milliseconds(tmp_path: Path) -> None:
    rows = read_trace(written(tmp_path, "m.jsonl", MOONCAKE))
    assert rows == (TraceRow(27.482, 6955, 52), TraceRow(30.535, 6472, 26))


def test_azures_columns_are_read_with_their_dates(tmp_path: Path) -> None:
    first, second = read_trace(written(tmp_path, "a.csv", AZURE))
    assert second.at - first.at == pytest.approx(4.314579)
    assert (first.input_tokens, first.output_tokens) == (374, 44)
    zoned = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n"
    assert read_trace(written(tmp_path, "b.csv", zoned))[0].at == pytest.approx(1715299200.00993)


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("t.txt", "", "a trace is a .jsonl file (Mooncake's columns) or a .csv file (Azure's columns)"),
        ("t.jsonl", MOONCAKE + "{half", ":4: not JSON: "),
        ("t.jsonl", "[1]", ":1: expected an object with timestamp, input_length, output_length"),
        ("t.jsonl", '{"timestamp": 1, "input_length": 2}', ":1: no output_length; a line has timestamp, "),
        ("t.jsonl", '{"timestamp": "x", "input_length": 2, "output_length": 3}', ":1: not a time and two numbers"),
        ("t.jsonl", '{"timestamp": NaN, "input_length": 2, "output_length": 3}', ":1: a time must be finite"),
        ("t.jsonl", '{"timestamp": 1, "input_length": -2, "output_length": 3}', ":1: a time must be finite and"),
        ("t.jsonl", "\n".join(reversed(MOONCAKE.split("\n"))), ": the time is before the line above's; sort"),
        ("t.csv", AZURE.replace("ContextTokens", "Context"), ":2: no ContextTokens; a line has TIMESTAMP, "),
        ("t.csv", AZURE + "yesterday,1,2\n", ":4: not a time and two numbers of tokens: "),
        ("t.csv", AZURE + "2023-11-16 18:15:51\n", ":4: no ContextTokens"),
    ],
)
def test_what_is_no_trace_is_one_line_with_its_place(tmp_path: Path, name: str, text: str, complaint: str) -> None:
    with pytest.raises(InputError) as caught:
        read_trace(written(tmp_path, name, text))
    assert complaint in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / name))
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"t\.csv: cannot be read: No such file"):
        read_trace(tmp_path / "t.csv")
    (tmp_path / "b.csv").write_bytes(b"TIMESTAMP\xff\xfe\n")
    with pytest.raises(InputError, match=r"b\.csv: cannot be read: "):
        read_trace(tmp_path / "b.csv")
