"""Which tile sizes a launch takes."""

import pytest

from ddtree.triton import device
from ddtree.triton.schedule import MANY, SHORT, config_of

ONE, TWO, THREE, FOUR = (
    {"block_m": m, "block_n": 64, "warps": 4, "stages": 3, "resident": 1} for m in (16, 32, 64, 128)
)
TARGET = device.Target(90, 132)


def chosen(rows: int, size: int, length: int, requests: int = 1) -> int:
    return config_of(TARGET, rows, size, 2, length, requests).block_m


@pytest.fixture
def table(monkeypatch):
    tables = {"attention": {"64": {"32": ONE, "128": TWO}, "128": {"64": TWO}}, "short": {"64": {"64": THREE}}}
    tables["many"] = {"64": {"128": FOUR}}
    monkeypatch.setattr(device, "TUNED", [tables])


@pytest.mark.usefixtures("table")
def test_the_least_entry_that_holds_the_rows():
    assert [chosen(rows, 64, SHORT + 1) for rows in (1, 32, 33, 128, 500)] == [16, 16, 32, 32, 32]


@pytest.mark.usefixtures("table")
def test_short_tables_have_their_own_where_tuned():
    assert chosen(8, 64, SHORT) == 64
    assert chosen(8, 128, SHORT) == 32
    assert chosen(8, 96, SHORT + 1) == 32  # padded to 128


@pytest.mark.usefixtures("table")
def test_many_requests_have_their_own_where_tuned():
    assert chosen(100, 64, SHORT + 1, MANY) == 128
    assert chosen(100, 64, SHORT + 1, MANY - 1) == 32
    assert chosen(8, 64, SHORT + 1, MANY) == 16
    assert chosen(8, 64, SHORT, MANY) == 64
    assert chosen(100, 128, SHORT + 1, MANY) == 32


@pytest.mark.parametrize("arch", [90, 120])
def test_packaged_tables_serve_every_head_size(arch):
    for size in (16, 64, 96, 128, 256):
        for rows in (8, 100, 4096):
            for length in (64, 65536):
                for requests in (1, 64):
                    found = config_of(device.Target(arch, 132), rows, size, 2, length, requests)
                    assert found.warps in (4, 8, 16)
