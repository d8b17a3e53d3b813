from pathlib import Path

import pytest

from orchestrator.damage import Reading
from orchestrator.errors import InputError


def damaged() -> int:
    raise InputError("/runs/tree/decision.json: damaged record: it ends\nin the middle")


def test_a_damaged_file_is_one_line_without_its_folder_and_the_rest_is_read() -> None:
    reading = Reading()
    assert reading.attempt("decision.json", damaged, 3) == 3
    assert reading.attempt("journal.jsonl", lambda: 5, 3) == 5
    with reading.noting("trial 0123, requests.parquet"):
        (Path("nowhere") / "requests.parquet").read_bytes()
    first, second = reading.problems
    assert first == "decision.json: damaged record: it ends"
    assert second.startswith("trial 0123, requests.parquet: [Errno 2]")


def test_a_fault_of_ours_is_no_damage() -> None:
    with pytest.raises(ZeroDivisionError):
        Reading().attempt("decision.json", lambda: 1 // 0, 3)
