from orchestrator.times import clock


def test_durations_read_as_clocks() -> None:
    assert [clock(s) for s in (0, 9.6, 75, 3600, 3725, -1)] == ["0:00", "0:10", "1:15", "1:00:00", "1:02:05", "0:00"]
