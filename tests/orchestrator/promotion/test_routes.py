import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.promotion.routes import (
    Canary,
    Group,
    Routes,
    include_file,
    numbers_below,
    read_summary,
    shares,
)
from orchestrator.promotion.spec import RouterSpec

OLD, NEW = Group("aaa", ("10.0.0.1:1", "10.0.0.2:1")), Group("bbb", ("10.0.0.1:2",))
CANARY = Routes("prod", OLD, Canary(NEW, 5, 1_764_469_514))


@given(st.integers(1_000_000_000, 9_999_999_999), st.integers(1_000_000_000, 9_999_999_999))
def test_the_pattern_matches_the_numbers_below_the_limit(limit: int, number: int) -> None:
    matches = re.fullmatch(numbers_below(limit), str(number)) is not None
    assert matches == (number < limit)
    assert re.fullmatch(numbers_below(limit), str(limit)) is None
    assert limit == 1_000_000_000 or re.fullmatch(numbers_below(limit), str(limit - 1))


def test_routes_that_differ_in_anything_have_another_generation() -> None:
    assert CANARY.canary is not None
    others = [
        replace(CANARY, canary=None),
        replace(CANARY, canary=replace(CANARY.canary, share=25)),
        replace(CANARY, canary=replace(CANARY.canary, until=1)),
        replace(CANARY, spares=("10.0.0.9:9",)),
        replace(CANARY, stable=NEW),
    ]
    assert len({routes.generation for routes in [CANARY, *others]}) == 1 + len(others)
    assert CANARY.generation == replace(CANARY).generation


def test_the_file_says_who_gets_what() -> None:
    text = include_file(CANARY, RouterSpec(), "/log")
    assert read_summary(text) == {"shares": {"aaa": 95.0, "bbb": 5}, "canary_until": 1_764_469_514}
    assert list(read_summary(text)["shares"]) == ["aaa", "bbb"]
    assert shares(replace(CANARY, canary=None)) == [("aaa", 100.0)]
    assert read_summary("server {}") == {}


@pytest.mark.parametrize(
    "line", ["5% bbb;", "server 10.0.0.1:1 backup;", "proxy_buffering off;", "keepalive_timeout 0;"]
)
def test_a_dead_canary_is_stood_in_for_and_streams_are_not_held_back(line: str) -> None:
    assert line in include_file(CANARY, RouterSpec(), "/log")
