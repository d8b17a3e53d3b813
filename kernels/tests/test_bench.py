"""The parts of the benchmark that need no GPU."""

import math

from ddtree.bench.table import Check, Limits, Row


def row(us: float) -> Row:
    return Row("k", "batch 1", us, 10.0, "bytes")


def test_a_time_below_its_floor_fails_and_says_why():
    assert row(10.0).failure == ""
    assert row(9.8).failure == ""
    assert row(9.6).failure == "k batch 1 takes 0.96 of its floor: the floor is wrong"
    assert Row("k", "s", 1.0, 0.0, "bytes").failure


def test_a_check_fails_by_name():
    assert Check("c", 0.1, 0.1).failure == ""
    assert Check("c", 0.2, 0.1).failure == "c"
    assert Check("c", math.nan, 0.1).failure == "c"


def test_records_are_in_the_units_of_their_names():
    record = Limits(4.0e6, 4.5e6, 7.0e8, 1.3).record()
    assert record == {"copy_tb_s": 4.0, "bandwidth_tb_s": 4.5, "matmul_tflop_s": 700.0, "launch_us": 1.3}
    assert row(12.0).record()["ratio"] == 1.2
