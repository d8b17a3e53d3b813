import pandas as pd

from dashboards.equivalence import Passage, passages, worst
from orchestrator.records import Divergence


def divergence(gap: float, near_tie: bool, arm: str = "tree") -> Divergence:
    return Divergence(
        arm=arm,
        prompt_id="p1",
        concurrency=1,
        position=3,
        expected_token=1,
        actual_token=2,
        gap=gap,
        near_tie=near_tie,
    )


def requests(**texts: str) -> pd.DataFrame:
    rows = [{"arm": arm, "concurrency": 1, "prompt_id": "p1", "text": text} for arm, text in texts.items()]
    return pd.DataFrame(rows)


def passage(plain: str, tree: str) -> Passage | None:
    return passages([divergence(1.0, False)], requests(plain=plain, tree=tree), {"tree": "plain"})[0]


def test_violations_come_first_then_the_widest_gaps() -> None:
    rows = [divergence(0.2, True), divergence(0.1, False), divergence(0.9, True), divergence(3.0, False)]
    ordered = worst(pd.DataFrame([row.model_dump() for row in rows]), 3)
    assert [(d.gap, d.near_tie) for d in ordered] == [(3.0, False), (0.1, False), (0.9, True)]


def test_passage_shows_where_texts_part() -> None:
    assert passage("one two three", "one two tree") == Passage("one two t", "hree", "ree")


def test_long_texts_are_cut_on_both_sides() -> None:
    found = passage("a" * 500 + "x" * 500, "a" * 500 + "y" * 500)
    assert found == Passage("…" + "a" * 70, "x" * 90 + "…", "y" * 90 + "…")


def test_a_text_that_ended_early_shows_an_empty_end() -> None:
    assert passage("one two", "one two three") == Passage("one two", "", " three")


def test_texts_that_read_the_same_or_are_missing_have_no_passage() -> None:
    assert passage("same", "same") is None
    assert passages([divergence(1.0, False)], requests(tree="a"), {"tree": "plain"}) == [None]
    assert passages([divergence(1.0, False)], requests(plain="a", tree="b"), {}) == [None]
