import math

import pytest

from dashboards import text
from orchestrator.records import Interval


def test_numbers_are_written_one_way() -> None:
    assert text.tok_s(1234.56) == "1,234.6"
    assert text.ms(9.96) == "10.0"
    assert text.stage_ms(0.416) == "0.42"
    assert text.ratio(1.5) == "1.50×"
    assert text.percent(0.1234, 1) == "12.3 %"
    assert text.bounds(Interval(estimate=1.5, low=1.349, high=1.701), 2) == "1.35–1.70"


@pytest.mark.parametrize("write", [text.tok_s, text.ms, text.ratio, text.percent])
def test_what_was_not_measured_is_a_dash(write: object) -> None:
    assert callable(write)
    assert write(math.nan) == text.NONE


def test_markup_is_escaped_for_plotly() -> None:
    assert text.plain("<b>a</b> & b\nc") == "&lt;b&gt;a&lt;/b&gt; &amp; b c"


def test_elided_names_keep_both_ends() -> None:
    long = "ddtree-" + "x" * 60 + "-budget=15"
    assert text.elide("ddtree-budget=15") == "ddtree-budget=15"
    assert len(text.elide(long)) == 22
    assert text.elide(long).startswith("ddtree-")
    assert text.elide(long).endswith("budget=15")


def test_counts_agree_with_their_noun() -> None:
    assert text.count(1, "trial") == "1 trial"
    assert text.count(1200, "trial") == "1,200 trials"
